//! On which platforms a pod might run, before anybody has chosen its node.
//!
//! The answer is always a superset: what is not understood restricts nothing, what is only
//! tolerated adds and never takes away, and it is never empty. Verifying too much can only refuse
//! more; verifying too little would let a pod's author choose what is looked at. So a pod that
//! speaks of its platform in words that are not understood, or in too many, might run anywhere: it
//! is not taken for one that says nothing, which gets the default.

mod choice;
mod spec;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};

use portolan_core::Platform;
use portolan_core::platform::PartialPlatform;

pub use spec::{
    Affinity, Expression, MAX_NODES, MAX_POD, Node, NodeAffinity, NodeSelector, Os, PodSpec,
    ReadPodError, Term, Toleration, node_from_object, nodes_from_yaml, spec_of,
};

use self::choice::{Choice, Way};
use crate::policy::PartialMeaning;
use crate::subjects::Wanted;

/// More are told as `os/*` or `*`.
pub const MAX_PLATFORMS: usize = 16;
/// Terms, and expressions of a term, that are read. With more of them a pod might run anywhere: nobody
/// means that many, and an admission webhook has no time for them.
const MAX_TERMS: usize = 16;
/// The same for values of an expression, and tolerations.
const MAX_VALUES: usize = 64;

/// The labels that the kubelet sets on every node, so that "not this value" means another one.
const ALWAYS_OS: &str = "kubernetes.io/os";
const ALWAYS_ARCH: &str = "kubernetes.io/arch";
const NODE_NAME: &str = "metadata.name";

/// What is known of the cluster, and what to take where a pod says nothing.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Labels that name the operating system.
    pub os_labels: Vec<String>,
    /// Labels that name the architecture.
    pub arch_labels: Vec<String>,
    /// What the cluster calls things, beside the names that are known anyway: `graviton` → `arm64`.
    pub values: BTreeMap<String, String>,
    /// Other labels that tell a platform: label → value → platform.
    pub labels: BTreeMap<String, BTreeMap<String, PartialPlatform>>,
    /// For a pod that says nothing.
    pub default: Default,
    /// What half a platform means.
    pub partial: PartialMeaning,
    /// The machine that verifies.
    pub host: Platform,
    /// The cluster's nodes, where they are known.
    pub nodes: Vec<Node>,
}

/// For a pod that says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Default {
    /// Nodes are like the machine that verifies.
    Host,
    /// The nodes that are known; without any, all that an image has something for.
    Nodes,
    /// All that an image has something for.
    All,
    /// These.
    List(Wanted),
}

impl Settings {
    /// The usual labels, and nothing known of the cluster.
    pub fn new(default: Default, host: Platform) -> Self {
        let labels = |names: [&str; 2]| names.map(str::to_owned).to_vec();
        Self {
            os_labels: labels([ALWAYS_OS, "beta.kubernetes.io/os"]),
            arch_labels: labels([ALWAYS_ARCH, "beta.kubernetes.io/arch"]),
            values: BTreeMap::new(),
            labels: BTreeMap::new(),
            default,
            partial: PartialMeaning::default(),
            host,
            nodes: Vec::new(),
        }
    }

    /// The platforms that nodes have, where that is known.
    fn known(&self) -> Option<Vec<PartialPlatform>> {
        match &self.default {
            Default::Nodes if !self.nodes.is_empty() => {
                let own = |node: &Node| PartialPlatform::from(&node.platform);
                Some(self.nodes.iter().map(own).collect())
            }
            Default::List(list) => Some(list.platforms().cloned().collect()),
            Default::Nodes | Default::Host | Default::All => None,
        }
    }

    fn default_set(&self) -> Vec<PartialPlatform> {
        match &self.default {
            Default::Host => {
                vec![PartialPlatform::new(Some(&self.host.os), Some(&self.host.architecture))]
            }
            Default::All | Default::Nodes | Default::List(_) => {
                self.known().unwrap_or_else(|| vec![PartialPlatform::any()])
            }
        }
    }

    /// A label's value under its usual name.
    fn named(&self, is_os: bool, value: &str) -> String {
        let value = self.values.get(value).map_or(value, String::as_str);
        let (os, arch) = if is_os { (Some(value), None) } else { (None, Some(value)) };
        let usual = PartialPlatform::new(os, arch);
        let usual = if is_os { usual.os() } else { usual.architecture() };
        usual.unwrap_or(value).to_owned()
    }
}

/// Every platform that a pod might run on.
pub fn platforms(pod: &PodSpec, settings: &Settings) -> Wanted {
    let node = |name: &str| settings.nodes.iter().find(|node| node.name == name);
    if let Some(node) = pod.node_name.as_deref().and_then(node) {
        return finish(vec![PartialPlatform::from(&node.platform)], settings);
    }
    let ways = ways(pod, settings);
    let mut found = Vec::new();
    for way in &ways {
        found.extend(expand(way, settings));
    }
    let added = tolerated(pod, &ways, &found, settings);
    found.extend(added);
    finish(found, settings)
}

/// Every way in which what the pod says can hold: each term with the selector and `os`. Where none
/// can, the scheduler finds no node either; then what the selector says is looked at, so that
/// something is.
fn ways(pod: &PodSpec, settings: &Settings) -> Vec<Way> {
    let mut selector = vec![Way::default()];
    for (key, value) in pod.node_selector.iter().flatten() {
        selector = all(&selector, &meaning(key, "In", std::slice::from_ref(value), settings));
    }
    let os = pod
        .os
        .as_ref()
        .map(|os| Way { os: Choice::one(&settings.named(true, &os.name)), ..Way::default() });
    let base = all(&selector, &[os.unwrap_or_default()]);
    let required = pod
        .affinity
        .iter()
        .filter_map(|affinity| affinity.node_affinity.as_ref()?.required.as_ref());
    let terms: Option<Vec<&Term>> =
        required.map(|one| one.node_selector_terms.iter().flatten().collect()).next();
    let with_terms = match terms {
        None => base.clone(),
        Some(terms) if terms.len() > MAX_TERMS => all(&base, &[Way::unclear()]),
        Some(terms) => {
            terms.into_iter().flat_map(|term| all(&base, &term_ways(term, settings))).collect()
        }
    };
    let possible = |ways: Vec<Way>| -> Option<Vec<Way>> {
        let ways: Vec<_> = ways.into_iter().filter(|way| !way.is_impossible()).collect();
        (!ways.is_empty()).then_some(ways)
    };
    possible(with_terms)
        .or_else(|| possible(base))
        .or_else(|| possible(selector))
        .unwrap_or_else(|| vec![Way::default()])
}

/// The ways in which a term can hold; none for one that has nothing in it.
fn term_ways(term: &Term, settings: &Settings) -> Vec<Way> {
    let expressions = || term.match_expressions.iter().flatten();
    let fields = || term.match_fields.iter().flatten();
    if expressions().next().is_none() && fields().next().is_none() {
        return Vec::new();
    }
    let is_read = expressions().count() <= MAX_TERMS;
    let mut ways = vec![if is_read { Way::default() } else { Way::unclear() }];
    for Expression { key, operator, values } in expressions().filter(|_| is_read) {
        let values = values.as_deref().unwrap_or_default();
        ways = all(&ways, &meaning(key, operator, values, settings));
    }
    for Expression { key, operator, values } in fields() {
        let names: BTreeSet<String> = values.iter().flatten().cloned().collect();
        let known = |name: &String| settings.nodes.iter().any(|node| node.name == *name);
        // A name that nobody knows may be any node.
        if key == NODE_NAME && operator == "In" && names.iter().all(known) {
            ways = all(&ways, &[Way { names: Some(names), ..Way::default() }]);
        }
    }
    ways
}

/// What an expression says of the platform: nothing on labels that tell of none, and that it may be
/// any where what it says is not understood.
fn meaning(key: &str, operator: &str, values: &[String], settings: &Settings) -> Vec<Way> {
    let is_always = [ALWAYS_OS, ALWAYS_ARCH].contains(&key);
    let is_listed = !values.is_empty() && values.len() <= MAX_VALUES;
    let (is_os, is_arch) = (
        settings.os_labels.iter().any(|label| label == key),
        settings.arch_labels.iter().any(|label| label == key),
    );
    if is_os || is_arch {
        let choice = match operator {
            "In" if is_listed => {
                Choice::In(values.iter().map(|value| settings.named(is_os, value)).collect())
            }
            // Word for word: "not x86_64" lets in every node, none is called that. And only on labels
            // that every node has: a node without the label has no such value either.
            "NotIn" if is_listed && is_always => Choice::NotIn(values.iter().cloned().collect()),
            "Exists" if is_always => Choice::Any,
            _ => Choice::unclear(),
        };
        return vec![match is_os {
            true => Way { os: choice, ..Way::default() },
            false => Way { arch: choice, ..Way::default() },
        }];
    }
    let Some(told) = settings.labels.get(key) else { return vec![Way::default()] };
    let ways: Option<Vec<_>> = match operator {
        "In" if is_listed => values.iter().map(|value| told.get(value).map(Way::of)).collect(),
        _ => None,
    };
    ways.unwrap_or_else(|| vec![Way::unclear()])
}

/// Every way of the one together with every way of the other, each once: so there are never more
/// than the platforms that the operator told of, whatever a pod's author writes.
fn all(these: &[Way], those: &[Way]) -> Vec<Way> {
    let together = these.iter().flat_map(|one| those.iter().map(move |other| one.and(other)));
    together.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The platforms that one way means.
fn expand(way: &Way, settings: &Settings) -> Vec<PartialPlatform> {
    if let Some(names) = &way.names {
        let named = settings.nodes.iter().filter(|node| names.contains(&node.name));
        let named = named.map(|node| PartialPlatform::from(&node.platform));
        let found: Vec<_> = named.flat_map(|platform| way.within(&platform)).collect();
        if !found.is_empty() {
            return found;
        }
    }
    if way.is_silent() {
        return settings.default_set();
    }
    let known = settings.known().unwrap_or_default();
    let found: Vec<_> = known.iter().flat_map(|platform| way.within(platform)).collect();
    if !found.is_empty() {
        return found;
    }
    // No node of that kind is known, yet: the author's word is all there is.
    let product = way.product().into_iter();
    let fill = |one: PartialPlatform| {
        match settings.partial {
            // All but one architecture, or any of many, is not the host's.
            PartialMeaning::Host if !way.is_vague() => {
                let whole = one.filled_from(&settings.host);
                PartialPlatform::new(Some(&whole.os), Some(&whole.architecture))
            }
            PartialMeaning::Host | PartialMeaning::Wildcard => one,
        }
    };
    product.map(fill).collect()
}

/// What tolerations add: a pod that may stand a taint for arm64 might run there.
fn tolerated(
    pod: &PodSpec,
    ways: &[Way],
    found: &[PartialPlatform],
    settings: &Settings,
) -> Vec<PartialPlatform> {
    let os_open = !ways.iter().all(|way| way.os.is_pinned());
    let arch_open = !ways.iter().all(|way| way.arch.is_pinned());
    let is_known = settings.known().is_some();
    let mut added = Vec::new();
    let all = [Toleration { operator: Some("Exists".to_owned()), ..Toleration::default() }];
    let tolerations = pod.tolerations.as_deref().unwrap_or_default();
    for toleration in if tolerations.len() > MAX_VALUES { &all[..] } else { tolerations } {
        let key = toleration.key.as_deref().unwrap_or_default();
        let exists = toleration.operator.as_deref() == Some("Exists");
        let of_os = key.is_empty() || settings.os_labels.iter().any(|label| label == key);
        let of_arch = key.is_empty() || settings.arch_labels.iter().any(|label| label == key);
        let value = toleration.value.as_deref().unwrap_or_default();
        if exists && !is_known && ((of_os && os_open) || (of_arch && arch_open)) {
            added.extend(found.iter().map(|one| {
                PartialPlatform::new(
                    one.os().filter(|_| !(of_os && os_open)),
                    one.architecture().filter(|_| !(of_arch && arch_open)),
                )
            }));
        } else if !exists && !key.is_empty() && of_os && os_open {
            let os = settings.named(true, value);
            added.extend(
                found.iter().map(|one| PartialPlatform::new(Some(&os), one.architecture())),
            );
        } else if !exists && !key.is_empty() && of_arch && arch_open {
            let arch = settings.named(false, value);
            added.extend(found.iter().map(|one| PartialPlatform::new(one.os(), Some(&arch))));
        } else if let Some(told) = settings.labels.get(key).filter(|_| os_open || arch_open) {
            let fits = |(name, _): &(&String, &PartialPlatform)| exists || *name == value;
            added.extend(told.iter().filter(fits).map(|(_, platform)| platform.clone()));
        }
    }
    added
}

/// Each once, none that another covers, not too many, and never none.
fn finish(found: Vec<PartialPlatform>, settings: &Settings) -> Wanted {
    let found: BTreeSet<_> = found.into_iter().collect();
    let widest =
        |one: &PartialPlatform| !found.iter().any(|other| other != one && other.covers(one));
    let mut kept: BTreeSet<_> = found.iter().filter(|one| widest(one)).cloned().collect();
    if kept.len() > MAX_PLATFORMS {
        let systems: BTreeSet<Option<String>> =
            kept.iter().map(|one| one.os().map(str::to_owned)).collect();
        kept = match systems.len() <= MAX_PLATFORMS && !systems.contains(&None) {
            true => systems.iter().map(|os| PartialPlatform::new(os.as_deref(), None)).collect(),
            false => BTreeSet::from([PartialPlatform::any()]),
        };
    }
    Wanted::of(kept).or_else(|| Wanted::of(settings.default_set())).unwrap_or_else(Wanted::all)
}
