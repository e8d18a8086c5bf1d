//! The registry that holds what is made: somebody's, or the embedded one as long as this takes.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;

use portolan_core::{LayoutReference, Reference, RegistryReference, Tag};
use portolan_registry::server::{Config, ServeError, Server, layout_dir};
use tokio_util::task::AbortOnDropHandle;

use super::log::Screens;
use super::site::Site;
use super::{Args, repository_of};
use crate::exit::Failure;
use crate::registry::serve;

/// Where it listens unless somebody says otherwise: where `portolan registry serve` does.
const USUAL: &str = "127.0.0.1:5000";

/// A registry to push to.
pub(super) struct Harbour {
    pub(super) image: RegistryReference,
    /// The same in the files of the embedded registry, which are read without it.
    pub(super) layout: Option<Reference>,
    /// What is remembered of builds is remembered under this.
    pub(super) record: String,
    /// Ends with the journey.
    _server: Option<AbortOnDropHandle<()>>,
}

impl Harbour {
    /// Somebody's registry.
    pub(super) fn given(to: &RegistryReference) -> Self {
        let tag = to.tag.clone().or_else(|| Some(Tag::latest()));
        let image = RegistryReference { tag, ..to.clone() };
        let record = image.to_string();
        Self { image, layout: None, record, _server: None }
    }

    /// The embedded one, on what it was left with.
    pub(super) async fn embedded(
        args: &Args,
        site: &Site,
        dir: &Path,
        screens: &Screens,
    ) -> Result<Self, Failure> {
        let root = site.registry();
        let server = bind(args.listen, &root, screens).await?;
        let text = format!("{}/{}", server.local_addr(), repository_of(dir));
        let image: RegistryReference = text.parse().map_err(Failure::usage)?;
        let tag = Tag::latest();
        let files = layout_dir(&root, &image.repository);
        let layout = LayoutReference { dir: files, tag: Some(tag.clone()), digest: None };
        let record = format!("embedded {}:{tag}", image.repository);
        let serving = tokio::spawn(async move {
            // It ends when it is dropped, and has nobody to tell.
            let _ = server.serve(std::future::pending()).await;
        });
        Ok(Self {
            image: RegistryReference { tag: Some(tag), ..image },
            layout: Some(Reference::Layout(layout)),
            record,
            _server: Some(AbortOnDropHandle::new(serving)),
        })
    }
}

/// Takes the address that is asked for, or the usual one, or where that is taken any.
async fn bind(
    asked: Option<SocketAddr>,
    root: &Path,
    screens: &Screens,
) -> Result<Server, Failure> {
    if let Some(address) = asked.filter(|address| !address.ip().is_loopback()) {
        let error = anyhow::anyhow!(
            "{address} is reached by others, and this registry asks nobody who they are; give a \
             loopback address, or use `portolan registry serve` with --htpasswd and push --to it"
        );
        return Err(Failure::usage(error));
    }
    let usual: SocketAddr = USUAL.parse().map_err(Failure::usage)?;
    match Server::bind(Config::new(root, asked.unwrap_or(usual))).await {
        Err(ServeError::Listen { source, .. })
            if asked.is_none() && source.kind() == ErrorKind::AddrInUse =>
        {
            let free = SocketAddr::new(usual.ip(), 0);
            let server = Server::bind(Config::new(root, free)).await;
            let server = server.map_err(|error| serve::failure(error, root))?;
            screens.tell(&format!("{USUAL} is taken; using {} meanwhile", server.local_addr()));
            Ok(server)
        }
        bound => bound.map_err(|error| serve::failure(error, root)),
    }
}
