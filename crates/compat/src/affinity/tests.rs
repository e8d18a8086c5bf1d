use super::formula::Condition;
use super::*;
use crate::artifact::Kind;

fn read(kind: Kind, text: &str) -> Requirements {
    Requirements::read(kind, text.as_bytes()).unwrap_or_else(|error| panic!("{error}")).requirements
}

fn spec(namespaces: &str) -> Affinity {
    let text = format!(r#"{{"schemaVersion": "0.1.0", "namespaces": {{{namespaces}}}}}"#);
    Affinity::of(&read(Kind::Spec, &text), &[]).unwrap()
}

/// One line for each alternative.
fn shown(affinity: &Affinity) -> Vec<String> {
    let condition = |one: &Condition| {
        let key = one.key.trim_start_matches(portolan_host::facts::labels::PREFIX);
        format!("{key} {:?} {}", one.operator, one.values.join(",")).trim_end().to_owned()
    };
    let all = affinity.formula.alternatives().iter();
    all.map(|one| one.iter().map(condition).collect::<Vec<_>>().join(" & ")).collect()
}

fn unsaid(affinity: &Affinity) -> Vec<String> {
    affinity.unsaid.iter().map(|one| format!("{}: {}", one.place, one.requirement)).collect()
}

#[test]
fn a_graph_becomes_alternatives() {
    let found = spec(
        r#""app": {"plugins": {"cpu": {"data": {"flags": ["AVX2"]}}}, "refs": {"oneOf": ["intel", "amd"], "noneOf": ["old"]}},
           "intel": {"plugins": {"hardware": {"data": {"cpu": ["GenuineIntel"]}}}},
           "amd": {"plugins": {"hardware": {"data": {"cpu": ["AuthenticAMD"], "pci": ["0302:10de"]}}}},
           "old": {"plugins": {"system": {"data": {"osRelease": {"ID": "centos"}}}}}"#,
    );
    assert_eq!(
        shown(&found),
        [
            "cpu-cpuid.AVX2 In true & cpu-model.vendor_id In Intel & system-os_release.ID NotIn centos",
            "cpu-cpuid.AVX2 In true & cpu-model.vendor_id In AMD & pci-0302_10de.present In true & system-os_release.ID NotIn centos",
        ]
    );
    assert_eq!(found.unsaid, []);
}

#[test]
fn what_labels_cannot_say_is_listed_and_shuts_nobody_out() {
    let found = spec(
        r#""app": {"plugins": {"cpu": {"data": {"flags": ["AVX2"]}}, "kernelModules": {"data": {"vfio-pci": {}}},
             "kernelConfiguration": {"data": {"CONFIG_VFIO": "m"}}, "kernelCmdline": {"data": {"intel_iommu": "on"}},
             "memory": {"data": {"total": {"op": "Ge", "value": ["16Gi"]}}}, "gpu": {}}, "refs": {"noneOf": ["bad"]}},
           "bad": {"plugins": {"kernelModules": {"data": {"nouveau": {}}}, "system": {"data": {"osRelease": {"ID": "centos"}}}}}"#,
    );
    // Whether a centos is shut out depends on a module that no label tells of.
    assert_eq!(shown(&found), ["cpu-cpuid.AVX2 In true"]);
    let said = unsaid(&found).join("\n");
    for part in [
        "app/gpu: a plugin that is not built in",
        "module vfio-pci",
        "CONFIG_VFIO m or y",
        "intel_iommu",
        "memory",
        "module nouveau",
        "app: not bad",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn one_choice_that_cannot_be_said_makes_the_choice_open() {
    let found = spec(
        r#""app": {"refs": {"oneOf": ["flag", "module"]}},
           "flag": {"plugins": {"cpu": {"data": {"flags": ["AVX2"]}}}},
           "module": {"plugins": {"kernelModules": {"data": {"kvm": {}}}}}"#,
    );
    assert!(found.formula.is_always());
    assert_eq!(found.unsaid.len(), 1);
}

#[test]
fn versions_of_kernels_and_levels_of_processors() {
    let found = spec(
        r#""app": {"plugins": {"kernelVersion": {"data": {"range": "[5.0.0,5.15.0)"}}, "cpu": {"data": {"level": "v3"}}}}"#,
    );
    let version = "kernel-version.major In 5 & kernel-version.minor Lt 15";
    let flags = ["AVX2", "FMA3", "MOVBE"].map(|name| format!("cpu-cpuid.{name} In true"));
    assert_eq!(
        shown(&found),
        [
            format!("cpu-cpuid.X86_64_V3 In true & {version}"),
            format!("{} & {version}", flags.join(" & "))
        ]
    );
    let arm = spec(r#""app": {"plugins": {"cpu": {"data": {"level": "v8.2"}}}}"#);
    assert_eq!(shown(&arm), ["kubernetes.io/arch In arm64"]);
    assert_eq!(unsaid(&arm), ["app/cpu: arm64/v8.2 or above"]);
}

#[test]
fn platforms_of_an_image_are_alternatives() {
    let [v3, arm] = ["linux/amd64/v3", "linux/arm64"].map(|text| text.parse::<Platform>().unwrap());
    let found = spec(r#""app": {"plugins": {"cpu": {"data": {"flags": ["AVX2"]}}}}"#).on(&v3);
    let both = found.or(Affinity::anywhere().on(&arm));
    assert_eq!(
        shown(&both),
        [
            "cpu-cpuid.AVX2 In true & cpu-cpuid.X86_64_V3 In true & kubernetes.io/arch In amd64 & kubernetes.io/os In linux",
            "cpu-cpuid.AVX2 In true & cpu-cpuid.FMA3 In true & cpu-cpuid.MOVBE In true & kubernetes.io/arch In amd64 & kubernetes.io/os In linux",
            "kubernetes.io/arch In arm64 & kubernetes.io/os In linux",
        ]
    );
}

#[test]
fn rules_of_nfd_become_alternatives_too() {
    let rules = "version: v1alpha1
compatibilities:
- tag: one
  rules:
  - name: gpu
    matchFeatures:
    - {feature: pci.device, matchExpressions: {class: {op: In, value: ['0302']}, vendor: {op: In, value: ['10de']}}}
    - {feature: kernel.loadedmodule, matchExpressions: {nvidia: {op: Exists}}}
    matchAny:
    - matchFeatures: [{feature: cpu.model, matchExpressions: {vendor_id: {op: In, value: [Intel]}}}]
    - matchFeatures: [{feature: cpu.model, matchExpressions: {vendor_id: {op: In, value: [AMD]}}}]
- tag: two
  rules:
  - {name: any, matchFeatures: [{feature: cpu.cpuid, matchName: {op: InRegexp, value: ['^AVX']}}]}
";
    let rules = read(Kind::Nfd, rules);
    let one = Affinity::of(&rules, &["one".to_owned()]).unwrap();
    assert_eq!(
        shown(&one),
        [
            "cpu-model.vendor_id In Intel & pci-0302_10de.present In true",
            "cpu-model.vendor_id In AMD & pci-0302_10de.present In true",
        ]
    );
    assert_eq!(unsaid(&one), ["set1 gpu: kernel.loadedmodule nvidia Exists"]);
    let both = Affinity::of(&rules, &[]).unwrap();
    assert!(both.formula.is_always() && both.unsaid.len() == 2);
    assert!(Affinity::of(&rules, &["other".to_owned()]).is_err());
}

/// Requirements are a stranger's: as many namespaces and edges as a spec may have, and choices that
/// multiply, are answered all the same. What is left out shuts nobody out.
#[test]
fn a_spec_that_means_more_than_there_is_time_for_is_answered() {
    let module = |n: usize| {
        format!(r#""m{n:03}": {{"plugins": {{"kernelModules": {{"data": {{"m{n}": {{}}}}}}}}}}"#)
    };
    let names = |prefix: &str, count: usize| {
        let names: Vec<String> = (0..count).map(|n| format!(r#""{prefix}{n:03}""#)).collect();
        names.join(",")
    };
    let forbidding: Vec<String> = (0..10)
        .map(|n| format!(r#""r{n}": {{"refs": {{"noneOf": [{}]}}}}"#, names("m", 900)))
        .collect();
    let modules: Vec<String> = (0..900).map(module).collect();
    let found = spec(&[modules, forbidding].concat().join(","));
    assert!(found.formula.is_always());
    assert_eq!(found.unsaid.len(), 900 + 10 * 900);

    // Each choice has sixty-four alternatives, and all of them are asked for together.
    let flag = |choice: usize, n: usize| {
        let id = format!("d{choice}x{n}");
        format!(
            r#""c{choice:03}f{n:03}": {{"plugins": {{"system": {{"data": {{"osRelease": {{"ID": "{id}"}}}}}}}}}}"#
        )
    };
    let mut all: Vec<String> = Vec::new();
    for choice in 0..12 {
        all.extend((0..64).map(|n| flag(choice, n)));
        let inner = names(&format!("c{choice:03}f"), 64);
        all.push(format!(r#""c{choice:03}": {{"refs": {{"oneOf": [{inner}]}}}}"#));
        all.push(format!(r#""n{choice:03}": {{"refs": {{"noneOf": ["c{choice:03}"]}}}}"#));
    }
    all.push(format!(
        r#""root": {{"refs": {{"all": [{}], "noneOf": [{}]}}}}"#,
        names("c", 12),
        names("n", 12)
    ));
    let found = spec(&all.join(","));
    assert!(found.formula.alternatives().len() <= formula::MAX_ALTERNATIVES);
}
