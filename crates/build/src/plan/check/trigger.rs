//! Triggers. Nothing here acts on them; a Build that could never be triggered is told so.

use portolan_api::build::Trigger;
use portolan_api::reason::Reason;

use super::super::refusal::Refusals;

pub(crate) fn check(trigger: &Trigger, refusals: &mut Refusals) {
    for when in &trigger.when {
        let name = &when.name;
        if name.is_empty() {
            refusals.add(Reason::TriggerNameCanNotBeBlank, "name is not set on a trigger");
        }
        let missing = |part: &str| format!("trigger {name:?} of type {} has no {part}", when.kind);
        match when.kind.as_str() {
            "GitHub" if when.github.as_ref().is_none_or(|github| github.events.is_empty()) => {
                refusals.add(Reason::TriggerInvalidGitHubWebHook, missing("github.events"));
            }
            "Image" if when.image.as_ref().is_none_or(|image| image.names.is_empty()) => {
                refusals.add(Reason::TriggerInvalidImage, missing("image.names"));
            }
            "Pipeline" => match &when.object_ref {
                None => refusals.add(Reason::TriggerInvalidPipeline, missing("objectRef")),
                Some(object) => {
                    let by_name = object.name.as_ref().is_some_and(|name| !name.is_empty());
                    if object.status.is_empty() {
                        refusals.add(Reason::TriggerInvalidPipeline, missing("objectRef.status"));
                    }
                    if by_name != object.selector.is_empty() {
                        let part = "one of objectRef.name and objectRef.selector";
                        refusals.add(Reason::TriggerInvalidPipeline, missing(part));
                    }
                }
            },
            "GitHub" | "Image" => {}
            other => refusals.add(
                Reason::TriggerInvalidType,
                format!("trigger {name:?} has type {other:?}, not GitHub, Image or Pipeline"),
            ),
        }
    }
}
