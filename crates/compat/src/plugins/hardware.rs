//! `hardware`: makers of processors, of which one will do, and devices, of which all must be there.

use super::attribute::{Attribute, Way};
use super::builtin::UnknownField;
use super::{Demands, instance, things};
use crate::json::{Spanned, Value};
use crate::value::At;

const FIELDS: [&str; 3] = ["cpu", "pci", "usb"];

pub(super) fn read(data: &Spanned, at: &mut At<'_>) -> Demands {
    let wanted = "an object with cpu, pci or usb";
    let Some(members) = at.object(data, wanted) else { return Vec::new() };
    let mut demands: Demands = Vec::new();
    for member in members {
        let value = &member.value;
        match member.key.as_str() {
            "cpu" => demands.extend(at.below("cpu", |at| {
                let what = "the processor's maker".to_owned();
                Attribute::read(value, what, ("cpu.model", "vendor_id"), Way::Vendor, at)
            })),
            "pci" => at.below("pci", |at| patterns(&things::PCI, value, &mut demands, at)),
            "usb" => at.below("usb", |at| patterns(&things::USB, value, &mut demands, at)),
            _ => demands.push(UnknownField::read(member, &FIELDS, at)),
        }
    }
    demands
}

fn patterns(kind: &'static things::Kind, value: &Spanned, demands: &mut Demands, at: &mut At<'_>) {
    let alone = std::slice::from_ref(value);
    let items = match &value.value {
        Value::String(_) => alone,
        _ => match at.array(value, "a list of class:vendor[:device]") {
            Some(items) => items,
            None => return,
        },
    };
    for (n, item) in items.iter().enumerate() {
        at.below(&n.to_string(), |at| match &item.value {
            Value::String(text) => demands.extend(instance::pattern(kind, text, item.place, at)),
            _ => at.expected(item, "a string such as \"0302:10de\""),
        });
    }
}
