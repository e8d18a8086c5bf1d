//! Data that a plugin cannot read, or that can hardly be meant.

use portolan_compat::Verdict::Unknown;
use portolan_compat::diagnostic::Severity;
use portolan_compat::document::Mode;
use portolan_compat::json;
use portolan_compat::plugins::{Manner, builtin};
use portolan_host::facts::Facts;

use crate::host::{builder, lint, lint_in};

#[test]
fn wrong_data_is_found_without_a_host() {
    for (plugin, data, says) in [
        ("kernelVersion", "{}", "the range is missing"),
        ("kernelVersion", "{\"range\": 5}", "expected a range"),
        ("kernelVersion", "{\"range\": \"5.10\"}", "is no range"),
        ("kernelVersion", "{\"range\": \"[5.15,5.0)\"}", "swap them"),
        ("kernelVersion", "{\"range\": \"[5.0,5.0)\"}", "no version is in"),
        ("kernelVersion", "{\"range\": \"[five,)\"}", "is no version"),
        ("kernelConfiguration", "{\"CONFIG_VFIO\": true}", "options are"),
        ("kernelConfiguration", "{\"CONFIG_VFIO\": null}", "expected"),
        ("kernelConfiguration", "{\"CONFIG_VFIO\": []}", "empty list"),
        ("kernelConfiguration", "{\"CONFIG_VFIO\": [null]}", "expected"),
        ("kernelConfiguration", "{\"CONFIG_\": \"y\"}", "no name of an option"),
        ("kernelConfiguration", "{\"../x\": \"y\"}", "no name of an option"),
        ("kernelModules", "{\"../../etc\": {}}", "no name of a module"),
        ("kernelModules", "{\"vfio-pci.ko\": {}}", "no name of a module"),
        ("kernelModules", "{\"a b\": {}}", "no name of a module"),
        ("kernelModules", "{\"vfio\": []}", "expected an object of parameters"),
        ("kernelModules", "{\"vfio\": {\"../x\": 1}}", "no name of a parameter"),
        ("kernelModules", "{\"vfio\": {\"x\": null}}", "expected"),
        ("kernelModules", "{\"vfio\": {\"state\": \"aviable\"}}", "loaded or available"),
        ("kernelModules", "{\"vfio\": {\"state\": 1}}", "loaded"),
        ("kernelCmdline", "{\"intel_iommu\": false}", "noneOf"),
        ("kernelCmdline", "{\"intel_iommu=on\": true}", "no name of a boot parameter"),
        ("kernelCmdline", "{\"a b\": true}", "no name of a boot parameter"),
        ("kernelCmdline", "{\"a\": [[]]}", "expected"),
        ("hardware", "{\"cpu\": []}", "empty list"),
        ("hardware", "{\"cpu\": 1, \"pci\": 5}", "expected a list"),
        ("hardware", "{\"pci\": [\"10de\"]}", "is no PCI device"),
        ("hardware", "{\"pci\": [\"0302:10de:1:2\"]}", "is no PCI device"),
        ("hardware", "{\"pci\": [\"0302:10deh\"]}", "four hexadecimal digits"),
        ("hardware", "{\"pci\": [\"030:10de\"]}", "two or four hexadecimal digits"),
        ("hardware", "{\"pci\": [3]}", "expected a string"),
        ("hardware", "{\"usb\": [\"0e:046d:0825:1\"]}", "is no USB device"),
        ("cpu", "{\"level\": \"v33\"}", "no architecture has a level"),
        ("cpu", "{\"level\": 3}", "expected a level"),
        ("cpu", "{\"flags\": [\"A B\"]}", "no name of a flag"),
        ("cpu", "{\"flags\": [1]}", "expected the name"),
        ("cpu", "{\"flags\": []}", "empty list"),
        ("cpu", "{\"sockets\": null}", "expected a string"),
        ("cpu", "{\"sockets\": {\"op\": \"ge\", \"value\": 1}}", "no operator"),
        ("cpu", "{\"sockets\": {\"value\": 1}}", "needs an operator"),
        ("cpu", "{\"sockets\": {\"op\": \"Ge\", \"values\": 1}}", "not part of an expression"),
        ("cpu", "{\"sockets\": {\"op\": \"Ge\", \"value\": [1, 2]}}", "takes one value"),
        ("cpu", "{\"sockets\": {\"op\": \"Ge\", \"value\": 1.5}}", "no integer"),
        ("cpu", "{\"sockets\": {\"op\": \"Ge\", \"value\": 1e300}}", "no integer"),
        ("cpu", "{\"vendor\": {\"op\": \"InRegexp\", \"value\": \"(\"}}", "no pattern"),
        ("kernel", "{\"version\": \"latest\"}", "is no version"),
        ("kernel", "{\"version\": \"[6,5]\"}", "swap them"),
        ("kernel", "{\"modules\": [1]}", "the name of a module"),
        ("memory", "{\"total\": {\"op\": \"Ge\", \"value\": \"lots\"}}", "no amount of memory"),
        ("memory", "{\"hugepages\": 5}", "expected an object"),
        ("pci", "{\"device\": [1]}", "expected an object"),
        ("pci", "{\"device\": 1}", "expected a list"),
        ("pci", "{\"device\": [{\"vendor\": \"nvidia\"}]}", "four hexadecimal digits"),
        ("pci", "{\"device\": [{\"vendor\": \"10de\", \"count\": -1}]}", "there cannot be -1"),
        ("pci", "{\"device\": [{\"vendor\": \"10de\", \"count\": \"2\"}]}", "expected a number"),
        ("system", "{\"osRelease\": {\"ID\": {}}}", "needs an operator"),
    ] {
        let found = lint(plugin, data);
        assert!(found.spec.is_none(), "{plugin} {data}: {:?}", found.diagnostics);
        let error = found.diagnostics.iter().find(|one| one.severity == Severity::Error).unwrap();
        assert_eq!(error.code.as_str(), "E_DATA", "{plugin} {data}: {error}");
        assert!(error.message.contains(says), "{plugin} {data}: {error}");
        assert!(error.path.starts_with("/namespaces/a/plugins/"), "{error:?}");
        assert!(error.place.line >= 2, "{error:?}");
        // Handed over without having been linted, it is unknown.
        let data = json::parse(data.as_bytes()).unwrap();
        let answer =
            builtin::ask(plugin, Some(&data), &builder().build(), Manner::default()).unwrap();
        assert_eq!(answer.verdict, Unknown, "{plugin} {answer:?}");
        assert!(answer.reasons.iter().any(|one| one.code == "E_DATA"));
    }
}

#[test]
fn typing_errors_come_with_what_was_meant_and_where() {
    for (plugin, data, code, near) in [
        ("hardware", "{\"cpus\": [\"Intel\"]}", "W_UNKNOWN_FIELD", "cpu"),
        ("hardware", "{\"cpu\": [\"GenuinIntel\"]}", "W_UNLIKELY", "GenuineIntel"),
        ("cpu", "{\"flags\": [\"AVX52F\"]}", "W_UNLIKELY", "AVX512F"),
        ("cpu", "{\"multithreaded\": true}", "W_UNKNOWN_FIELD", "multithreading"),
        ("cpu", "{\"sockets\": {\"op\": \"GE\", \"value\": 1}}", "E_DATA", "Ge"),
        ("cpu", "{\"level\": \"v88\"}", "E_DATA", "v8"),
        ("memory", "{\"numanodes\": 1}", "W_UNKNOWN_FIELD", "numaNodes"),
        ("network", "{\"device\": [{\"operstat\": \"up\"}]}", "W_UNKNOWN_FIELD", "operstate"),
        ("kernelModules", "{\"vfio-pci.ko\": {}}", "E_DATA", "vfio-pci"),
        ("kernelModules", "{\"vfio\": {\"state\": \"availabel\"}}", "E_DATA", "available"),
        ("kernelVersion", "{\"range\": \"5.10\"}", "E_DATA", "[5.10.0]"),
        ("kernelConfiguration", "{\"CONFIG_VFIO\": true}", "E_DATA", "\"y\""),
        ("kernelConfiguration", "{\"CONFIG_VFIO\": \"Y\"}", "W_UNLIKELY", "y"),
    ] {
        let found = lint(plugin, data);
        let one = &found.diagnostics[0];
        assert_eq!(
            (one.code.as_str(), one.suggestion.as_deref()),
            (code, Some(near)),
            "{plugin} {data}: {one}"
        );
    }
    let found = lint("cpu", "{\n  \"flags\": [\n    \"AVX2\",\n    \"AVXX\"]}");
    assert_eq!(found.diagnostics[0].place.to_string(), "6:5");
    assert_eq!(found.diagnostics[0].path, "/namespaces/a/plugins/cpu/data/flags/1");
}

#[test]
fn unknown_fields_are_errors_strictly_and_unknown_else() {
    let data = "{\"cpu\": [\"Intel\"], \"fpga\": [\"x\"]}";
    let found = lint("hardware", data);
    assert!(found.spec.is_some());
    assert_eq!(found.diagnostics[0].code.as_str(), "W_UNKNOWN_FIELD");
    assert!(lint_in(Mode::Strict, "hardware", data).spec.is_none());
}

#[test]
fn data_that_asks_for_nothing_and_equality_of_memory_are_unlikely() {
    for (plugin, data) in [
        ("hardware", "{}"),
        ("cpu", "{}"),
        ("kernelModules", "{}"),
        ("memory", "{\"total\": \"16Gi\"}"),
    ] {
        let found = lint(plugin, data);
        assert!(found.spec.is_some(), "{plugin} {data}");
        assert_eq!(found.diagnostics[0].code.as_str(), "W_UNLIKELY", "{plugin} {data}");
    }
}

#[test]
fn all_thirteen_are_built_in() {
    assert_eq!(builtin::NAMES.len(), 13);
    for name in builtin::NAMES {
        assert!(builtin::is(name));
        assert!(builtin::ask(name, None, &Facts::default(), Manner::default()).is_some());
        assert!(
            builtin::ask(&name.to_uppercase(), None, &Facts::default(), Manner::default())
                .is_none()
        );
    }
}
