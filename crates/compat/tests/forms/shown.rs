//! What a report shows of a host, and what not.

use portolan_compat::Verdict::{Fail, Pass, Unknown};
use portolan_host::facts::Facts;
use serde_json::json;

use crate::host::{ask, builder};

#[test]
fn no_more_of_the_command_line_is_shown_than_was_asked_for() {
    let facts = builder().build();
    for data in [
        json!({"token": "x"}),
        json!({"intel_iommu": "off"}),
        json!({"splash": true}),
        json!({"token": true}),
    ] {
        let found = ask("kernelCmdline", &data, &facts);
        let text = serde_json::to_string(&found).unwrap();
        for secret in ["abc", "/dev/vda1", "quiet", "tty0"] {
            assert!(!text.contains(secret), "{data}: {text}");
        }
    }
    let found = ask("kernelCmdline", &json!({"token": "abc"}), &facts);
    assert_eq!((found.verdict, found.reasons[0].found.as_deref()), (Pass, Some("(not shown)")));
}

#[test]
fn names_and_values_with_logins_are_not_shown() {
    let line = "wifi.psk=hush rd.pw=hush pwd=hush bearer=hush cookie.x=hush \
        proxy=http://me:hu/sh@proxy:3128 netroot=iscsi:me:hush@10.0.0.1::3260 pwm=on";
    let facts = Facts::builder().cmdline(line).build();
    for name in ["wifi.psk", "rd.pw", "pwd", "bearer", "cookie.x", "proxy", "netroot"] {
        for asked in [json!("other"), json!({"op": "Gt", "value": 1})] {
            let found = ask("kernelCmdline", &json!({name: asked}), &facts);
            let text = serde_json::to_string(&found).unwrap();
            assert!(!text.contains("hush") && !text.contains("hu/sh"), "{name}: {text}");
        }
    }
    let found = ask("kernelCmdline", &json!({"proxy": "other"}), &facts);
    assert_eq!(found.reasons[0].found.as_deref(), Some("http://me:(not shown)@proxy:3128"));
    let found = ask("kernelCmdline", &json!({"pwm": "off"}), &facts);
    assert_eq!(found.reasons[0].found.as_deref(), Some("on"));
    // What is compared is the value itself.
    let found = ask("kernelCmdline", &json!({"proxy": "http://me:hu/sh@proxy:3128"}), &facts);
    assert_eq!(found.verdict, Pass);
}

#[test]
fn a_serial_number_is_nobodys_business() {
    let facts = builder().build();
    let found = ask("usb", &json!({"device": [{"vendor": "046d", "serial": "other"}]}), &facts);
    assert_eq!(found.verdict, Fail);
    assert!(!serde_json::to_string(&found).unwrap().contains("ABC123"), "{found:?}");
}

#[test]
fn nothing_a_host_says_plays_with_a_terminal() {
    let hostile = "5.10\u{1b}[2J\u{202e}\n\u{9b}1m";
    let facts = Facts::builder()
        .attribute("kernel.version", "full", hostile)
        .source("kernel.version", "/proc/\u{1b}[31m")
        .attribute("system.dmiid", "sys_vendor", hostile)
        .unknown("kernel.config", hostile)
        .instance("pci.device", [("class", "0300"), ("vendor", hostile)])
        .cmdline("a=\u{1b}[2J")
        .build();
    for (plugin, data) in [
        ("kernelVersion", json!({"range": "[6,)"})),
        ("system", json!({"dmi": {"sys_vendor": "x\u{1b}"}})),
        ("kernelConfiguration", json!({"VFIO": "\u{1b}[0m"})),
        ("pci", json!({"device": [{"class": "0300", "vendor": "10de"}]})),
        ("kernelCmdline", json!({"a": "b\u{202e}"})),
        ("kernelCmdline", json!({"a\u{202e}": "b"})),
    ] {
        let found = ask(plugin, &data, &facts);
        for reason in &found.reasons {
            let texts = [
                Some(&reason.message),
                reason.expected.as_ref(),
                reason.found.as_ref(),
                reason.source.as_ref(),
                reason.remedy.as_ref(),
            ];
            for text in texts.into_iter().flatten() {
                let bad = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
                assert!(!text.contains(bad), "{plugin} {text:?}");
            }
        }
    }
}

/// What a kernel was built to boot with is a command line, too.
#[test]
fn a_built_in_command_line_is_not_shown() {
    let facts = Facts::builder().attribute("kernel.config", "CMDLINE", "quiet token=hush").build();
    for (asked, expected) in [
        (json!("other"), Fail),
        (json!("quiet token=hush"), Pass),
        (json!({"op": "InRegexp", "value": ["quiet"]}), Pass),
        (json!({"op": "Gt", "value": 1}), Unknown),
        (json!({"op": "Gt", "value": "1", "type": "version"}), Unknown),
    ] {
        let found = ask("kernelConfiguration", &json!({"CONFIG_CMDLINE": asked}), &facts);
        assert_eq!(found.verdict, expected, "{asked}");
        let told = found.reasons[0].message.clone() + found.reasons[0].found.as_deref().unwrap();
        assert!(!told.contains("hush") && told.contains("(not shown)"), "{told}");
    }
}

#[test]
fn a_secret_that_cannot_be_compared_is_not_shown() {
    let facts = builder().build();
    for kind in ["", "version"] {
        let asked = json!({"token": {"op": "Gt", "value": 1, "type": kind}});
        let found = ask("kernelCmdline", &asked, &facts);
        assert_eq!(found.verdict, Unknown);
        assert!(!serde_json::to_string(&found).unwrap().contains("abc"), "{found:?}");
    }
}

#[test]
fn a_long_list_is_cut_where_it_is_told() {
    let many: Vec<String> = (0..50_000).map(|n| format!("v{n}")).collect();
    let facts = builder().build();
    for (plugin, data) in [
        ("kernelConfiguration", json!({"HZ": many})),
        ("cpu", json!({"family": many})),
        ("cpu", json!({"family": {"op": "In", "value": many}})),
        ("kernelModules", json!({"kvm": {"halt_poll_ns": many}})),
    ] {
        let found = ask(plugin, &data, &facts);
        assert_eq!(found.verdict, Fail, "{plugin}");
        let expected = found.reasons.last().unwrap().expected.as_deref().unwrap();
        assert!(expected.len() < 1000 && expected.contains("49980 more"), "{plugin} {expected}");
    }
}
