//! Which label of NFD tells a fact, and what its values are.
//!
//! NFD makes labels of few of the features it knows, with the settings it comes with; these are
//! the ones that [`say`] knows. What it makes no label of, or what a label cannot be asked, cannot
//! be said.

use portolan_host::facts::labels::{self, PREFIX};

use super::formula::{Condition, Formula, Operator, TooMany};
use crate::expression::{Expression, Kind, Op};

/// The classes that begin with `03`.
const DISPLAYS: [&str; 4] = ["0300", "0301", "0302", "0380"];
/// How a label tells a fact.
enum Told {
    /// Its value is the fact's.
    Value(String),
    /// It is there, as `true`, where the fact is `true`, and else missing.
    WhenTrue(String),
    /// The same, for a flag that is there.
    WhenPresent(String),
}

/// What a requirement on an element of a feature is for labels; none if they cannot say it.
pub fn say(feature: &str, element: &str, expression: &Expression) -> Option<Formula> {
    let label = |name: String| format!("{PREFIX}{name}");
    let told = match (feature, element) {
        ("cpu.cpuid", flag) if labels::of_flag(flag) && is_label(flag) => {
            Told::WhenPresent(label(format!("cpu-cpuid.{flag}")))
        }
        ("cpu.model", "hypervisor") => {
            // NFD up to 0.18 makes no such label.
            let key = label("cpu-model.hypervisor".to_owned());
            let missing = Condition::new(&key, Operator::DoesNotExist, &[]);
            return value(&key, expression)?.or(missing.into()).ok();
        }
        ("cpu.model", "vendor_id" | "family" | "id") => {
            Told::Value(label(format!("cpu-model.{element}")))
        }
        ("cpu.topology", "hardware_multithreading") => {
            Told::Value(label("cpu-hardware_multithreading".to_owned()))
        }
        ("cpu.cstate", "enabled") => Told::Value(label("cpu-cstate.enabled".to_owned())),
        ("cpu.pstate", "status" | "turbo" | "scaling_governor") => {
            Told::Value(label(format!("cpu-pstate.{element}")))
        }
        ("cpu.sst", "bf.enabled") => Told::Value(label("cpu-power.sst_bf.enabled".to_owned())),
        ("cpu.coprocessor", "nx_gzip") => Told::Value(label("cpu-coprocessor.nx_gzip".to_owned())),
        ("kernel.version", "full" | "major" | "minor" | "revision") => {
            Told::Value(label(format!("kernel-version.{element}")))
        }
        ("kernel.config", option) if labels::of_option(option) => {
            return option_label(&label(format!("kernel-config.{option}")), expression);
        }
        ("kernel.selinux", "enabled") => Told::WhenTrue(label("kernel-selinux.enabled".to_owned())),
        ("memory.numa", "is_numa") => Told::WhenTrue(label("memory-numa".to_owned())),
        ("memory.swap", "enabled") => Told::WhenTrue(label("memory-swap".to_owned())),
        ("system.osrelease", "ID" | "VERSION_ID" | "VERSION_ID.major" | "VERSION_ID.minor") => {
            Told::Value(label(format!("system-os_release.{element}")))
        }
        ("system.platform", "os" | "arch") => Told::Value(format!("kubernetes.io/{element}")),
        _ => return None,
    };
    match told {
        Told::Value(key) => value(&key, expression),
        Told::WhenTrue(key) => truth(&key, expression),
        Told::WhenPresent(key) => match expression.op() {
            Op::Any => Some(Formula::always()),
            Op::Exists => Some(present(&key)),
            Op::DoesNotExist => Some(absent(&key)),
            // A flag has no value, so nothing else can hold.
            _ => Some(Formula::never()),
        },
    }
}

/// A PCI device of this class and maker; none if NFD makes no label of it. Displays may be meant
/// all together, as `03`.
pub fn pci(class: &str, vendor: &str) -> Option<Formula> {
    if class == "03" {
        let kinds = DISPLAYS.iter().map(|class| pci(class, vendor));
        return kinds.flatten().try_fold(Formula::never(), Formula::or).ok();
    }
    let plain = class.len() == 4 && vendor.len() == 4;
    (labels::of_pci_class(class) && plain)
        .then(|| present(&format!("{PREFIX}pci-{class}_{vendor}.present")))
}

/// A USB device; none if NFD makes no label of it.
pub fn usb(class: &str, vendor: &str, device: &str) -> Option<Formula> {
    let key = format!("{PREFIX}usb-{class}_{vendor}_{device}.present");
    labels::of_usb_class(class).then(|| present(&key))
}

/// A disk without moving parts.
pub fn solid_disk() -> Formula {
    present(&format!("{PREFIX}storage-nonrotationaldisk"))
}

/// A processor of this level of x86-64. NFD up to 0.18 makes no label of levels, so that the flags
/// which it does make labels of will do as well.
pub fn amd64_level(level: u32) -> Formula {
    let flag = |name: &str| present(&format!("{PREFIX}cpu-cpuid.{name}"));
    let flags: &[&str] = match level {
        0 | 1 => return arch("amd64"),
        2 => &["LAHF"],
        3 => &["AVX2", "FMA3", "MOVBE"],
        _ => &["AVX512BW", "AVX512CD", "AVX512DQ", "AVX512F", "AVX512VL"],
    };
    let own = flag(&format!("X86_64_V{level}"));
    let all = flags.iter().try_fold(Formula::always(), |all, name| all.and(&flag(name)));
    all.and_then(|all| own.clone().or(all)).unwrap_or(own)
}

/// A node of this architecture.
pub fn arch(architecture: &str) -> Formula {
    Condition::new("kubernetes.io/arch", Operator::In, &[architecture]).into()
}

/// A node of this operating system.
pub fn os(os: &str) -> Formula {
    Condition::new("kubernetes.io/os", Operator::In, &[os]).into()
}

/// A kernel between two versions: each bound as its three numbers, and whether it belongs to the
/// range itself.
pub fn kernel_between(
    lower: Option<([u64; 3], bool)>,
    upper: Option<([u64; 3], bool)>,
) -> Result<Formula, TooMany> {
    let mut all = Formula::always();
    if let Some((version, inclusive)) = lower {
        all = all.and(&beyond(Operator::Gt, version, inclusive)?)?;
    }
    if let Some((version, inclusive)) = upper {
        all = all.and(&beyond(Operator::Lt, version, inclusive)?)?;
    }
    Ok(all)
}

/// Numbers are compared one after the other, as far as those before are equal.
fn beyond(operator: Operator, version: [u64; 3], inclusive: bool) -> Result<Formula, TooMany> {
    let parts = ["major", "minor", "revision"];
    let key = |part: usize| format!("{PREFIX}kernel-version.{}", parts[part]);
    let mut any = Formula::never();
    let mut equal = Formula::always();
    for (part, number) in version.iter().enumerate() {
        let strictly = Condition::new(&key(part), operator, &[&number.to_string()]);
        any = any.or(equal.and(&strictly.into())?)?;
        let same = Condition::new(&key(part), Operator::In, &[&number.to_string()]);
        equal = equal.and(&same.into())?;
        // After a lower bound of 5.10.0 any revision will do; labels may lack it.
        let rest_is_zero = version[part + 1..].iter().all(|number| *number == 0);
        if rest_is_zero && inclusive && operator == Operator::Gt {
            return any.or(equal);
        }
        if rest_is_zero && !inclusive && operator == Operator::Lt {
            return Ok(any);
        }
    }
    if inclusive { any.or(equal) } else { Ok(any) }
}

fn present(key: &str) -> Formula {
    Condition::new(key, Operator::In, &["true"]).into()
}

fn absent(key: &str) -> Formula {
    Condition::new(key, Operator::NotIn, &["true"]).into()
}

/// NFD writes `true` for `y`, and makes no label of what is not set.
fn option_label(key: &str, expression: &Expression) -> Option<Formula> {
    match expression.op() {
        Op::Any => Some(Formula::always()),
        Op::Exists => Some(Condition::new(key, Operator::Exists, &[]).into()),
        Op::DoesNotExist => Some(Condition::new(key, Operator::DoesNotExist, &[]).into()),
        // None of them can be a module.
        Op::In if expression.values().iter().any(|value| value == "y") => Some(present(key)),
        _ => None,
    }
}

/// A label that is missing where the fact is `false`.
fn truth(key: &str, expression: &Expression) -> Option<Formula> {
    let has = |word: &str| expression.values().iter().any(|value| value == word);
    match expression.op() {
        Op::Any => Some(Formula::always()),
        Op::IsTrue => Some(present(key)),
        Op::IsFalse => Some(absent(key)),
        Op::In if has("true") && !has("false") => Some(present(key)),
        Op::In if has("false") && !has("true") => Some(absent(key)),
        _ => None,
    }
}

/// A label with the fact's value.
fn value(key: &str, expression: &Expression) -> Option<Formula> {
    let values: Vec<&str> = expression.values().iter().map(String::as_str).collect();
    let condition =
        |operator, values: &[&str]| Formula::from(Condition::new(key, operator, values));
    let numbers = || match expression.kind() {
        Kind::Integer => values.iter().map(|text| text.parse::<i64>().ok()).collect(),
        Kind::Version => None::<Vec<i64>>,
    };
    let beside = |operator, number: i64, step: i64| {
        Some(condition(operator, &[&number.checked_add(step)?.to_string()]))
    };
    // NFD replaces what a label may not hold, so such a value is never found in one.
    let sayable = values.iter().all(|value| is_label(value));
    match expression.op() {
        Op::Any => Some(Formula::always()),
        Op::Exists => Some(condition(Operator::Exists, &[])),
        Op::DoesNotExist => Some(condition(Operator::DoesNotExist, &[])),
        Op::In if sayable => Some(condition(Operator::In, &values)),
        Op::NotIn if sayable => {
            let there = condition(Operator::Exists, &[]);
            condition(Operator::NotIn, &values).and(&there).ok()
        }
        Op::IsTrue => Some(condition(Operator::In, &["true"])),
        Op::IsFalse => Some(condition(Operator::In, &["false"])),
        op @ (Op::Gt | Op::Ge | Op::Lt | Op::Le) => {
            let number = *numbers()?.first()?;
            match op {
                Op::Gt => beside(Operator::Gt, number, 0),
                Op::Ge => beside(Operator::Gt, number, -1),
                Op::Lt => beside(Operator::Lt, number, 0),
                _ => beside(Operator::Lt, number, 1),
            }
        }
        op @ (Op::GtLt | Op::GeLe) => {
            let numbers = numbers()?;
            let (lower, upper) = (*numbers.first()?, *numbers.get(1)?);
            let step = if op == Op::GeLe { 1 } else { 0 };
            let above = beside(Operator::Gt, lower, -step)?;
            above.and(&beside(Operator::Lt, upper, step)?).ok()
        }
        _ => None,
    }
}

/// Whether the text can be the value of a label.
fn is_label(text: &str) -> bool {
    !text.is_empty() && labels::is_label_value(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For a test: one line each, alternatives joined by `|`.
    fn shown(formula: &Formula) -> String {
        let condition = |one: &Condition| {
            let key = one.key.trim_start_matches(PREFIX);
            format!("{key} {:?} {}", one.operator, one.values.join(",")).trim_end().to_owned()
        };
        let all = formula.alternatives().iter();
        let all = all.map(|one| one.iter().map(condition).collect::<Vec<_>>().join(" & "));
        all.collect::<Vec<_>>().join(" | ")
    }

    fn said(feature: &str, element: &str, op: &str, values: &[&str]) -> Option<String> {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        let expression = Expression::new(op, values, "").unwrap();
        say(feature, element, &expression).map(|formula| shown(&formula))
    }

    #[test]
    fn facts_have_the_labels_that_nfd_makes() {
        let some = |text: &str| Some(text.to_owned());
        for (feature, element, op, values, expected) in [
            ("cpu.cpuid", "AVX2", "Exists", &[][..], some("cpu-cpuid.AVX2 In true")),
            ("cpu.cpuid", "AVX2", "DoesNotExist", &[], some("cpu-cpuid.AVX2 NotIn true")),
            ("cpu.cpuid", "AVX2", "In", &["true"], some("")),
            ("cpu.cpuid", "POPCNT", "Exists", &[], None),
            (
                "cpu.model",
                "vendor_id",
                "In",
                &["Intel", "AMD"],
                some("cpu-model.vendor_id In Intel,AMD"),
            ),
            ("cpu.model", "family", "Ge", &["6"], some("cpu-model.family Gt 5")),
            (
                "cpu.model",
                "family",
                "GeLe",
                &["6", "9"],
                some("cpu-model.family Gt 5 & cpu-model.family Lt 10"),
            ),
            (
                "cpu.model",
                "family",
                "NotIn",
                &["6"],
                some("cpu-model.family NotIn 6 & cpu-model.family Exists"),
            ),
            (
                "cpu.model",
                "hypervisor",
                "In",
                &["none"],
                some("cpu-model.hypervisor In none | cpu-model.hypervisor DoesNotExist"),
            ),
            ("cpu.model", "vendor_id", "InRegexp", &["^I"], None),
            ("kernel.config", "PREEMPT", "Exists", &[], some("kernel-config.PREEMPT Exists")),
            ("kernel.config", "PREEMPT", "In", &["m"], None),
            ("kernel.config", "PREEMPT", "In", &["y", "m"], some("kernel-config.PREEMPT In true")),
            ("kernel.config", "VFIO", "Exists", &[], None),
            ("kernel.selinux", "enabled", "IsTrue", &[], some("kernel-selinux.enabled In true")),
            ("memory.swap", "enabled", "IsFalse", &[], some("memory-swap NotIn true")),
            ("system.osrelease", "ID", "In", &["debian"], some("system-os_release.ID In debian")),
            ("system.osrelease", "PRETTY_NAME", "Exists", &[], None),
            ("system.osrelease", "ID", "In", &["a b"], None),
            ("system.platform", "arch", "In", &["arm64"], some("kubernetes.io/arch In arm64")),
            ("kernel.loadedmodule", "vfio", "Exists", &[], None),
        ] {
            assert_eq!(said(feature, element, op, values), expected, "{feature} {element} {op}");
        }
    }

    #[test]
    fn devices_have_labels_where_nfd_makes_them() {
        assert_eq!(
            pci("0302", "10de").map(|f| shown(&f)).as_deref(),
            Some("pci-0302_10de.present In true")
        );
        assert_eq!(pci("0200", "8086"), None);
        assert_eq!(pci("03", "10de").unwrap().alternatives().len(), 4);
        assert!(usb("0e", "046d", "0825").is_some() && usb("08", "046d", "0825").is_none());
    }

    #[test]
    fn a_range_of_kernels_compares_one_number_after_the_other() {
        let range = |lower, upper| {
            shown(&kernel_between(lower, upper).unwrap()).replace("kernel-version.", "")
        };
        assert_eq!(range(Some(([5, 0, 0], true)), None), "major Gt 5 | major In 5");
        assert_eq!(range(None, Some(([5, 15, 0], false))), "major Lt 5 | major In 5 & minor Lt 15");
        assert_eq!(
            range(Some(([5, 10, 3], true)), None),
            "major Gt 5 | major In 5 & minor Gt 10 | major In 5 & minor In 10 & revision Gt 3 | major In 5 & minor In 10 & revision In 3"
        );
        // Impossible alternatives fall away.
        assert_eq!(
            range(Some(([5, 0, 0], true)), Some(([5, 15, 0], false))),
            "major In 5 & minor Lt 15"
        );
    }

    /// Every version against the arithmetic that it stands for.
    #[test]
    fn a_range_of_kernels_means_what_it_says() {
        let bounds = [[5, 0, 0], [5, 10, 0], [5, 10, 3], [6, 0, 0]];
        for (lower, upper, low_in, up_in) in bounds.iter().flat_map(|lower| {
            bounds.iter().flat_map(move |upper| {
                [(true, true), (true, false), (false, true), (false, false)]
                    .map(|(a, b)| (*lower, *upper, a, b))
            })
        }) {
            let formula = kernel_between(Some((lower, low_in)), Some((upper, up_in))).unwrap();
            for major in 4..8_u64 {
                for minor in [0, 9, 10, 11] {
                    for revision in [0, 2, 3, 4] {
                        let version = [major, minor, revision];
                        let above = if low_in { version >= lower } else { version > lower };
                        let below = if up_in { version <= upper } else { version < upper };
                        let holds = formula.alternatives().iter().any(|all| {
                            all.iter().all(|one| {
                                let part = one.key.rsplit('.').next().unwrap();
                                let value = match part {
                                    "major" => major,
                                    "minor" => minor,
                                    _ => revision,
                                };
                                let bound: u64 = one.values[0].parse().unwrap();
                                match one.operator {
                                    Operator::Gt => value > bound,
                                    Operator::Lt => value < bound,
                                    _ => value == bound,
                                }
                            })
                        });
                        assert_eq!(
                            holds,
                            above && below,
                            "{version:?} {lower:?} {upper:?} {low_in} {up_in}"
                        );
                    }
                }
            }
        }
    }
}
