//! Who provides a plugin: the artifact's own layers, then this machine's directories, then the
//! address in the spec. Everything is asked of the policy first, fetched second, and hashed last.

use std::sync::Arc;

use portolan_core::platform::containerd;
use portolan_core::{Algorithm, Descriptor, Digest, Document, Platform, RegistryReference, Target};
use portolan_registry::client::Client;
use portolan_registry::images::Place;

use super::directory;
use super::fetch::{Fetch, FetchError};
use super::malfunction::Malfunction;
use super::policy::{Candidate, Grant, Policy, Provider, Refusal};
use super::program::{MAX_PROGRAM, Program};
use super::source::{self, Pin, Source};
use super::store::Store;
use super::{Origin, Settings};
use crate::artifact::{PluginLayer, plugin_layers};
use crate::document::Plugin;
use crate::plugins::builtin;

/// A program that may run.
#[derive(Debug)]
pub(super) struct Provided {
    pub(super) program: Arc<Program>,
    pub(super) provider: Provider,
    pub(super) grant: Grant,
    /// Who else has a plugin of this name, and why that one was not taken.
    pub(super) passed_over: Vec<String>,
}

/// All that finding needs.
pub(super) struct Finder<'a> {
    settings: &'a Settings,
    policy: &'a Policy,
    origin: &'a Origin,
    fetch: &'a dyn Fetch,
    /// For `oci://`: without any login, since a spec decides who is asked.
    client: &'a Client,
    here: Platform,
    store: Store,
}

impl<'a> Finder<'a> {
    pub(super) fn new(
        settings: &'a Settings,
        policy: &'a Policy,
        origin: &'a Origin,
        fetch: &'a dyn Fetch,
        client: &'a Client,
    ) -> Self {
        let store = Store::new(&settings.directory);
        Self { settings, policy, origin, fetch, client, here: settings.platform.clone(), store }
    }

    /// The first provider whose program may run. One that may not is passed over: whoever comes
    /// next is looked at just as closely.
    pub(super) async fn find(&self, plugin: &Plugin) -> Result<Provided, Malfunction> {
        let pin = source::pin(plugin, &self.here).map_err(Malfunction::Source)?;
        let mut passed_over: Vec<Malfunction> = Vec::new();
        for provider in [Provider::Layer, Provider::Directory, Provider::Http] {
            let found = match provider {
                Provider::Layer => self.layer(plugin).await,
                Provider::Directory => self.installed(plugin),
                Provider::Http => self.source(plugin, pin.as_ref()).await,
            };
            let checked = match found {
                Ok(Some(program)) => self.check(plugin, provider, pin.as_ref(), program),
                Ok(None) => continue,
                Err(malfunction) => Err(malfunction),
            };
            match checked {
                Ok((program, grant)) => {
                    let program = Arc::new(program);
                    let passed_over = passed_over.iter().map(Malfunction::describe).collect();
                    return Ok(Provided { program, provider, grant, passed_over });
                }
                Err(malfunction) => passed_over.push(malfunction),
            }
        }
        // A built-in plugin steps back for a program that may take its place and cannot, not for one
        // that may not: what was refused says nothing then.
        let told = match builtin::is(&plugin.name) {
            true => passed_over.iter().position(|one| !one.is_refusal()).unwrap_or_default(),
            false => 0,
        };
        let directory = self.settings.directory.clone();
        Err(passed_over.into_iter().nth(told).unwrap_or(Malfunction::NotFound { directory }))
    }

    fn allowed(
        &self,
        plugin: &Plugin,
        provider: Provider,
        digest: &Digest,
    ) -> Result<Grant, Malfunction> {
        let candidate = Candidate {
            provider,
            repository: self.origin.repository.as_deref(),
            plugin: &plugin.name,
            digest,
            built_in: builtin::is(&plugin.name),
        };
        self.policy.allows(&candidate).map_err(|source| Malfunction::Policy {
            provider: provider.as_str(),
            digest: *digest,
            source,
        })
    }

    /// The last word is about the bytes that would run.
    fn check(
        &self,
        plugin: &Plugin,
        provider: Provider,
        pin: Option<&Pin>,
        program: Program,
    ) -> Result<(Program, Grant), Malfunction> {
        if let Some(pin) = pin.filter(|pin| pin.digest != *program.digest()) {
            return Err(Malfunction::Digest { pinned: pin.digest, found: *program.digest() });
        }
        let grant = self.allowed(plugin, provider, program.digest())?;
        program.check_libraries(grant.libraries)?;
        Ok((program, grant))
    }

    async fn layer(&self, plugin: &Plugin) -> Result<Option<Program>, Malfunction> {
        let Some(layer) = choose(&self.origin.plugins, &plugin.name, &self.here) else {
            return Ok(None);
        };
        // Before anything is fetched; a digest of another kind is looked at again afterwards.
        self.allowed_by_name(plugin, Provider::Layer, &layer.layer.digest)?;
        let Some(place) = &self.origin.place else { return Ok(None) };
        self.blob(place, &layer.layer).await.map(Some)
    }

    fn installed(&self, plugin: &Plugin) -> Result<Option<Program>, Malfunction> {
        let artifact = self.origin.artifact.as_ref();
        let found = directory::find(&self.settings.directory, artifact, &plugin.name)
            .map_err(Malfunction::Directory)?;
        Ok(found.map(Program::read).transpose()?)
    }

    async fn source(
        &self,
        plugin: &Plugin,
        pin: Option<&Pin>,
    ) -> Result<Option<Program>, Malfunction> {
        if plugin.source.is_none() {
            return Ok(None);
        }
        if !self.policy.uses(Provider::Http) {
            let why = "none lets plugins come from a source".to_owned();
            return Err(Malfunction::Off(Refusal::NoRule { why }));
        }
        match source::resolve(plugin, pin).map_err(Malfunction::Source)? {
            None => Ok(None),
            Some(Source::Https { url, digest }) => {
                self.allowed(plugin, Provider::Http, &digest)?;
                if let Some(kept) = self.store.read(&digest) {
                    return Ok(Some(Program::read(kept.as_slice())?));
                }
                if self.settings.offline {
                    return Err(Malfunction::Offline);
                }
                let bytes = self.fetch.fetch(&url).await.map_err(Malfunction::Fetch)?;
                let found = Digest::sha256(&bytes);
                if found != digest {
                    return Err(Malfunction::Digest { pinned: digest, found });
                }
                self.keep(&digest, &bytes);
                Ok(Some(Program::read(bytes.as_slice())?))
            }
            Some(Source::Oci { reference, .. }) => self.oci(plugin, &reference).await.map(Some),
        }
    }

    /// The layer for this machine of an artifact whose manifest the spec pins.
    async fn oci(
        &self,
        plugin: &Plugin,
        reference: &RegistryReference,
    ) -> Result<Program, Malfunction> {
        let repository = format!("{}/{}", reference.registry, reference.repository);
        if !self.policy.may_ask(&repository) {
            return Err(Malfunction::Fetch(FetchError::Unlisted { repository }));
        }
        if self.settings.offline {
            return Err(Malfunction::Offline);
        }
        let place =
            Place::Remote(self.client.repository(&reference.registry, &reference.repository));
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| {
            Malfunction::Fetch(FetchError::Registry { place: repository.clone(), source })
        };
        let Target::Digest(digest) = reference.target() else {
            return Err(failed("no digest".into()));
        };
        let fetched =
            place.manifest(&Target::Digest(digest)).await.map_err(|error| failed(error.into()))?;
        let layers = match &fetched.document {
            Document::Manifest(manifest) => {
                plugin_layers(manifest).map_err(|error| failed(error.into()))?
            }
            Document::Index(_) => Vec::new(),
        };
        let layer = choose(&layers, &plugin.name, &self.here).ok_or_else(|| {
            Malfunction::Fetch(FetchError::NoLayer {
                place: format!("{repository}@{digest}"),
                name: plugin.name.clone(),
                platform: self.here.to_string(),
            })
        })?;
        self.allowed_by_name(plugin, Provider::Http, &layer.layer.digest)?;
        self.blob(&place, &layer.layer).await
    }

    /// A policy pins programs by SHA-256, as nearly all layers are named. One that is named
    /// otherwise can only be judged once it is here.
    fn allowed_by_name(
        &self,
        plugin: &Plugin,
        provider: Provider,
        digest: &Digest,
    ) -> Result<(), Malfunction> {
        match digest.algorithm() {
            Algorithm::Sha256 => self.allowed(plugin, provider, digest).map(drop),
            Algorithm::Sha512 => Ok(()),
        }
    }

    async fn blob(&self, place: &Place, layer: &Descriptor) -> Result<Program, Malfunction> {
        if let Some(kept) = self.store.read(&layer.digest) {
            return Ok(Program::read(kept.as_slice())?);
        }
        if self.settings.offline && matches!(place, Place::Remote(_)) {
            return Err(Malfunction::Offline);
        }
        let bytes = place.read_blob(layer, MAX_PROGRAM).await.map_err(|error| {
            let place = place.to_string();
            Malfunction::Fetch(FetchError::Registry { place, source: error.into() })
        })?;
        self.keep(&layer.digest, &bytes);
        Ok(Program::read(bytes.as_ref())?)
    }

    /// Only a way not to fetch twice: where it cannot be kept, it is fetched again next time. What
    /// is named by another kind of digest is: the store knows one kind.
    fn keep(&self, digest: &Digest, bytes: &[u8]) {
        if digest.algorithm() != Algorithm::Sha256 {
            return;
        }
        if let Err(error) = self.store.keep(digest, bytes) {
            tracing::debug!(%digest, error = &error as &dyn std::error::Error, "a plugin is not kept");
        }
    }
}

/// The layer for this machine: the best of those that run here, else one that names no platform.
fn choose<'a>(layers: &'a [PluginLayer], name: &str, here: &Platform) -> Option<&'a PluginLayer> {
    let named: Vec<&PluginLayer> =
        layers.iter().filter(|layer| layer.name == name && !layer.wasm).collect();
    let (with, platforms): (Vec<&PluginLayer>, Vec<Platform>) =
        named.iter().filter_map(|layer| Some((*layer, layer.platform.clone()?))).unzip();
    let best = containerd::choose(here, &platforms).map(|n| with[n]);
    best.or_else(|| named.into_iter().find(|layer| layer.platform.is_none()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(name: &str, platform: Option<&str>, wasm: bool) -> PluginLayer {
        let text = format!("{name} {platform:?} {wasm}");
        PluginLayer {
            name: name.to_owned(),
            platform: platform.map(|text| text.parse().unwrap()),
            wasm,
            layer: Descriptor::of("any", text.as_bytes()),
        }
    }

    #[test]
    fn the_layer_for_this_machine_is_taken() {
        let all = [
            layer("x", Some("linux/arm64"), false),
            layer("x", Some("linux/amd64"), false),
            layer("x", Some("linux/amd64/v3"), false),
            layer("x", None, true),
            layer("y", None, false),
            layer("z", Some("linux/arm64"), false),
        ];
        let chosen = |name: &str, here: &str| {
            choose(&all, name, &here.parse().unwrap())
                .map(|layer| all.iter().position(|one| one == layer).unwrap())
        };
        assert_eq!(chosen("x", "linux/amd64/v2"), Some(1));
        assert_eq!(chosen("x", "linux/amd64/v4"), Some(2));
        assert_eq!(chosen("x", "linux/arm64"), Some(0));
        assert_eq!(chosen("x", "linux/s390x"), None);
        assert_eq!(chosen("y", "linux/s390x"), Some(4));
        assert_eq!(chosen("z", "linux/amd64"), None);
        assert_eq!(chosen("none", "linux/amd64"), None);
    }
}
