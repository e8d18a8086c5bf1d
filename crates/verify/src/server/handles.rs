//! What the verifier does with its file handles.

use super::config::Limits;

/// For what is neither who asks nor a registry: files, timers, health.
const OTHERS: usize = 160;
/// Requests of one piece of work at once, each on a connection of its own.
const PER_WORK: usize = crate::collect::CONCURRENCY;
/// With fewer connections nobody can work.
const FEWEST: usize = 16;

/// How handles are shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares {
    /// Connections of who asks, at each address.
    pub(super) connections: usize,
    /// Connections to registries, under way and kept for the next.
    pub(super) outgoing: usize,
}

/// There are too few to begin with.
#[derive(Debug, thiserror::Error)]
#[error(
    "this process may have {most} file handles, at least {needed} are needed with limits.work = {work}; raise the \
     limit (ulimit -n, LimitNOFILE of systemd) or lower limits.work"
)]
pub struct TooFewHandles {
    most: usize,
    needed: usize,
    work: usize,
}

/// Shares out `most` handles between registries and who asks at so many `addresses`.
pub(super) fn share(
    most: usize,
    limits: &Limits,
    addresses: usize,
) -> Result<Shares, TooFewHandles> {
    // As many again are kept open for a while after they were used.
    let outgoing = limits.work.saturating_mul(PER_WORK * 2);
    // Who is not past the handshake has places of its own.
    let each = addresses.max(1) * 2;
    let needed = outgoing.saturating_add(OTHERS).saturating_add(each * FEWEST);
    if most < needed {
        return Err(TooFewHandles { most, needed, work: limits.work });
    }
    let connections = limits.connections.min((most - outgoing - OTHERS) / each);
    Ok(Shares { connections, outgoing })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn where_handles_are_few_there_are_fewer_connections() {
        let limits = Limits::default();
        let connections = |most| share(most, &limits, 1).map(|shares| shares.connections).ok();
        assert_eq!(connections(1 << 20), Some(limits.connections));
        assert_eq!(connections(1024), Some(176));
        assert_eq!(connections(256), None);
        let error = share(256, &limits, 1).unwrap_err().to_string();
        assert!(error.contains("256") && error.contains("limits.work"), "{error}");
    }

    proptest! {
        #[test]
        fn there_are_never_more_than_there_may_be(
            most in 0..5000_usize, work in 1..200_usize, wanted in 1..5000_usize, addresses in 1..3_usize,
        ) {
            let limits = Limits { work, connections: wanted, ..Limits::default() };
            if let Ok(Shares { connections, outgoing }) = share(most, &limits, addresses) {
                prop_assert!(connections * addresses * 2 + outgoing + OTHERS <= most);
                prop_assert!(connections >= FEWEST.min(wanted) && connections <= wanted);
            }
        }
    }
}
