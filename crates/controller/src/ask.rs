//! Objects that are asked for by names that people wrote.

use portolan_api::names::is_subdomain;

/// What is called so, as `asking` finds it. No object has a name that is none, and the server would be asked for
/// something else: a name goes into a path as it stands, and what it then says is no answer to whether it is there.
pub(crate) async fn named<T>(
    name: &str,
    asking: impl Future<Output = kube::Result<Option<T>>>,
) -> kube::Result<Option<T>> {
    match is_subdomain(name) {
        true => asking.await,
        false => Ok(None),
    }
}
