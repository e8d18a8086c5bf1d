//! Copies to, from and within the reference registry, which has no referrers API: referrers go
//! through the fallback tag.

mod support;

use support::docker_registry::DockerRegistry;

copy_scenarios!(DockerRegistry::start());
