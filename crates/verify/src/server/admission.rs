//! What a webhook of Kubernetes is asked: AdmissionReviews, and what of them has to be looked at.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::looked_at::{MAX_VALUES, Object};
use super::readers::PodLogins;
use crate::pod::{PodSpec, ReadPodError, spec_of};

/// Images of one pod; no pod that runs has more.
const MAX_IMAGES: usize = 256;

#[derive(Deserialize)]
struct Review {
    request: Option<Request>,
}

/// What is asked.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    pub(super) uid: String,
    #[serde(default)]
    pub(super) namespace: Option<String>,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    object: Object,
    #[serde(default)]
    old_object: Object,
}

#[derive(Deserialize)]
struct Numbered {
    request: Option<Uid>,
}

#[derive(Deserialize)]
struct Uid {
    uid: String,
}

/// Of an AdmissionReview that there is no place to read.
pub(super) fn uid(body: &[u8]) -> Option<String> {
    serde_json::from_slice::<Numbered>(body).ok()?.request.map(|request| request.uid)
}

/// Reads an AdmissionReview.
pub(super) fn read(body: &[u8]) -> Result<Request, String> {
    let review: Review = serde_json::from_slice(body)
        .map_err(|error| format!("the body is no AdmissionReview: {error}"))?;
    review.request.ok_or_else(|| "the AdmissionReview has no request".to_owned())
}

/// A pod, and the images that have to be looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ToLookAt {
    pub(super) pod: PodSpec,
    /// Each once, in order.
    pub(super) images: BTreeSet<String>,
    /// What the pod has to show registries.
    pub(super) logins: PodLogins,
}

/// Why a request cannot be decided.
#[derive(Debug, thiserror::Error)]
pub(super) enum Undecidable {
    #[error(
        "{0}; the rules of the webhook should name pods, and workloads if you like, and nothing else"
    )]
    Pod(#[from] ReadPodError),
    #[error(
        "the pod has a container or volume without an image, so it is not known what would run"
    )]
    NoImage,
    #[error("the pod's {0} is no list, so it is not known what would run")]
    NoList(&'static str),
    #[error("the pod has more than {MAX_IMAGES} images")]
    TooMany,
    #[error("the pod says more than {MAX_VALUES} things of its images and of where it may run")]
    TooMuch,
}

/// What has to be looked at; none where nothing new would run.
///
/// A container that an update leaves as it was, in a pod that may run where it might before, was looked
/// at when it came: otherwise nobody could take a finalizer off a pod whose signer was dropped. A new
/// container with the same image is new: what a tag was then need not be what is pulled now.
pub(super) fn to_look_at(request: &Request) -> Result<Option<ToLookAt>, Undecidable> {
    if matches!(request.operation.as_str(), "DELETE" | "CONNECT") {
        return Ok(None);
    }
    if request.object.too_much {
        return Err(Undecidable::TooMuch);
    }
    let (pod, mut parts) = parts(&request.object.value)?;
    if request.operation == "UPDATE"
        && let Ok((before, known)) = self::parts(&request.old_object.value)
        && before == pod
    {
        parts.retain(|part| part.name.is_none() || !known.contains(part));
    }
    let logins = logins(&request.object.value)?;
    let images: BTreeSet<_> = parts.into_iter().map(|part| part.image.to_owned()).collect();
    Ok((!images.is_empty()).then_some(ToLookAt { pod, images, logins }))
}

fn logins(object: &Value) -> Result<PodLogins, Undecidable> {
    let (_, spec) = spec_of(object)?;
    let named = spec.get("imagePullSecrets").and_then(Value::as_array).into_iter().flatten();
    let named = named.filter_map(|one| one.get("name")?.as_str().map(str::to_owned));
    let account = spec.get("serviceAccountName").and_then(Value::as_str);
    let account = account.filter(|name| !name.is_empty()).map(str::to_owned);
    Ok(PodLogins { secrets: named.take(MAX_IMAGES).collect(), service_account: account })
}

/// Something in a pod that runs an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Part<'a> {
    list: &'static str,
    name: Option<&'a str>,
    image: &'a str,
}

/// Containers of every kind, and volumes that are images.
fn parts(object: &Value) -> Result<(PodSpec, BTreeSet<Part<'_>>), Undecidable> {
    let pod = PodSpec::from_object(object)?;
    let (_, spec) = spec_of(object)?;
    let mut parts = BTreeSet::new();
    let members = |list| match spec.get(list) {
        None | Some(Value::Null) => Ok([].as_slice()),
        Some(Value::Array(all)) => Ok(all.as_slice()),
        Some(_) => Err(Undecidable::NoList(list)),
    };
    for list in ["containers", "initContainers", "ephemeralContainers", "volumes"] {
        for one in members(list)? {
            let image = match (list, one.get("image")) {
                ("volumes", None) => continue,
                ("volumes", Some(image)) => image.get("reference"),
                (_, image) => image,
            };
            let image = image.and_then(Value::as_str).filter(|image| !image.is_empty());
            let name = one.get("name").and_then(Value::as_str);
            parts.insert(Part { list, name, image: image.ok_or(Undecidable::NoImage)? });
        }
    }
    match parts.iter().map(|part| part.image).collect::<BTreeSet<_>>().len() {
        0 => Err(Undecidable::NoImage),
        1..=MAX_IMAGES => Ok((pod, parts)),
        _ => Err(Undecidable::TooMany),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn request(operation: &str, object: Value, old_object: Value) -> Request {
        let operation = operation.to_owned();
        let whole = |value| Object { value, too_much: false };
        let (object, old_object) = (whole(object), whole(old_object));
        Request { uid: "u".to_owned(), namespace: None, operation, object, old_object }
    }

    fn pod(images: &[&str], arch: &str) -> Value {
        let named = images.iter().enumerate();
        let containers: Vec<_> =
            named.map(|(n, image)| json!({"name": format!("c{n}"), "image": image})).collect();
        json!({"spec": {"nodeSelector": {"kubernetes.io/arch": arch}, "containers": containers}})
    }

    #[test]
    fn of_an_update_only_what_is_new_is_looked_at_unless_the_pod_may_run_elsewhere() {
        let looked_at = |request: &Request| {
            let found = to_look_at(request).unwrap();
            found.map(|found| found.images.into_iter().collect::<Vec<_>>()).unwrap_or_default()
        };
        let before = pod(&["a", "b"], "amd64");
        let debugged = |image: &str| {
            let mut pod = pod(&["a", "b"], "amd64");
            pod["spec"]["ephemeralContainers"] = json!([{"name": "debug", "image": image}]);
            pod
        };
        let nameless = json!({"spec": {"containers": [{"image": "a"}]}});
        for (operation, object, old, expected) in [
            ("CREATE", pod(&["b", "a", "a"], "amd64"), Value::Null, vec!["a", "b"]),
            ("CREATE", before.clone(), before.clone(), vec!["a", "b"]),
            ("UPDATE", before.clone(), before.clone(), vec![]),
            ("UPDATE", pod(&["a", "c"], "amd64"), before.clone(), vec!["c"]),
            // What is new is looked at, whoever else runs the same image.
            ("UPDATE", pod(&["a", "b", "a"], "amd64"), before.clone(), vec!["a"]),
            ("UPDATE", pod(&["b", "a"], "amd64"), before.clone(), vec!["a", "b"]),
            ("UPDATE", debugged("a"), before.clone(), vec!["a"]),
            ("UPDATE", debugged("a"), debugged("a"), vec![]),
            ("UPDATE", nameless.clone(), nameless, vec!["a"]),
            ("UPDATE", pod(&["a", "b"], "arm64"), before.clone(), vec!["a", "b"]),
            ("UPDATE", before.clone(), json!({"spec": 7}), vec!["a", "b"]),
            ("DELETE", Value::Null, before.clone(), vec![]),
            ("", before.clone(), before, vec!["a", "b"]),
        ] {
            let asked = request(operation, object, old);
            assert_eq!(looked_at(&asked), expected, "{asked:?}");
        }
    }

    #[test]
    fn what_nobody_looks_at_is_not_kept_and_of_the_rest_there_is_so_much() {
        let read_object = |object: &str| {
            let text = format!("{{\"request\":{{\"uid\":\"u\",\"object\":{object}}}}}");
            read(text.as_bytes()).map(|request| request.object)
        };
        let many = |of: &str, n: usize| vec![of; n].join(",");
        let pod = |more: &str| {
            format!("{{\"spec\":{{{more}\"containers\":[{{\"name\":\"c\",\"image\":\"a\"}}]}}}}")
        };
        let ignored = format!("\"status\":[{}],", many(r#"{"":0}"#, 300_000));
        let found = read_object(&pod(&ignored)).unwrap();
        assert_eq!(found.value, json!({"spec": {"containers": [{"name": "c", "image": "a"}]}}));
        for (more, too_much) in [(5000, false), (500_000, true)] {
            let tolerated = format!("\"tolerations\":[{}],", many("{}", more));
            let object = read_object(&pod(&tolerated)).unwrap();
            assert_eq!(object.too_much, too_much, "{more}");
            let mut asked = request("CREATE", Value::Null, Value::Null);
            asked.object = object;
            assert_eq!(matches!(to_look_at(&asked), Err(Undecidable::TooMuch)), too_much);
        }
        // As an object that is all of one list.
        let list = read_object(&format!("{{\"spec\":[{}]}}", many(r#"{"":0}"#, 300_000)));
        assert!(list.unwrap().too_much);
        let twice = read_object(r#"{"spec":{"containers":[]},"spec":{}}"#).unwrap_err();
        assert!(twice.contains("twice"), "{twice}");
    }

    #[test]
    fn what_a_pod_has_to_show_registries_is_read_from_whatever_makes_it() {
        let spec = json!({"containers": [{"image": "a"}], "serviceAccountName": "builder",
                          "imagePullSecrets": [{"name": "x"}, {}, 7, {"name": "y"}]});
        for object in [json!({"spec": spec}), json!({"spec": {"template": {"spec": spec}}})] {
            let found = to_look_at(&request("CREATE", object, Value::Null)).unwrap().unwrap();
            assert_eq!(found.logins.secrets, ["x", "y"]);
            assert_eq!(found.logins.service_account.as_deref(), Some("builder"));
        }
        let plain = to_look_at(&request("CREATE", pod(&["a"], "amd64"), Value::Null));
        assert_eq!(plain.unwrap().unwrap().logins, PodLogins::default());
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let word = prop::sample::select(vec![
            "spec",
            "containers",
            "initContainers",
            "volumes",
            "image",
            "reference",
            "template",
            "nodeSelector",
            "tolerations",
            "request",
            "uid",
            "object",
            "operation",
            "UPDATE",
        ]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            word.clone().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 64, 5, move |inner| {
            let members = prop::collection::vec((word.clone(), inner.clone()), 0..5);
            prop_oneof![
                prop::collection::vec(inner, 0..4).prop_map(Value::from),
                members.prop_map(|all| {
                    Value::from_iter(all.into_iter().map(|(name, value)| (name.to_owned(), value)))
                }),
            ]
        })
    }

    /// The images that the shipped template asks about.
    fn asked_by_the_template(request: &Request) -> BTreeSet<String> {
        use crate::template::answers::Answers;
        use crate::template::evaluate::{Evaluator, Outcome};
        use crate::template::read::{Template, documents};
        static SHIPPED: std::sync::LazyLock<Evaluator> = std::sync::LazyLock::new(|| {
            let all = documents(crate::template::TEMPLATE.as_bytes()).unwrap();
            Evaluator::new(&Template::among(&all).unwrap()).unwrap()
        });
        let Request { operation, object, old_object, .. } = request;
        let (object, old) = (&object.value, &old_object.value);
        let review = json!({"operation": operation, "object": object, "oldObject": old});
        let input = json!({"parameters": {}, "review": review});
        let keys = match SHIPPED.review(input, &Answers::none_yet()).unwrap() {
            Outcome::Asks(keys) => keys,
            Outcome::Violations(violations) => {
                assert!(violations.is_empty(), "{violations:?}");
                BTreeSet::new()
            }
        };
        let image = |key: &String| {
            let key: Value = serde_json::from_str(key).unwrap();
            key["reference"].as_str().unwrap().to_owned()
        };
        keys.iter().map(image).collect()
    }

    /// A pod of containers and volumes, named or not.
    fn any_pod() -> impl Strategy<Value = Value> {
        let image = prop::sample::select(vec!["a", "b", "c"]);
        let name = prop::option::weighted(0.9, prop::sample::select(vec!["x", "y"]));
        let one = (0..4_usize, name, image);
        let arch = prop::sample::select(vec!["amd64", "amd64", "amd64", "arm64"]);
        (prop::collection::vec(one, 0..4), arch).prop_map(|(parts, arch)| {
            let mut pod = pod(&["a"], arch);
            for (list, name, image) in parts {
                let list = ["containers", "initContainers", "ephemeralContainers", "volumes"][list];
                let mut part = match list {
                    "volumes" => json!({"image": {"reference": image}}),
                    _ => json!({"image": image}),
                };
                if let Some(name) = name {
                    part["name"] = json!(name);
                }
                match pod["spec"][list].as_array_mut() {
                    Some(all) => all.push(part),
                    None => pod["spec"][list] = json!([part]),
                }
            }
            pod
        })
    }

    proptest! {
        /// Of an update the webhook and the template look at the same images.
        #[test]
        fn the_template_asks_of_an_update_what_the_webhook_looks_at(
            object in any_pod(), old in any_pod(), same in any::<bool>(),
        ) {
            let old = if same { object.clone() } else { old };
            let asked = request("UPDATE", object, old);
            let found = to_look_at(&asked).unwrap().map(|found| found.images).unwrap_or_default();
            prop_assert_eq!(asked_by_the_template(&asked), found, "{:?}", asked);
        }

        /// What is there to be looked at is never nothing that is let in: it has images, or the
        /// request is one that runs nothing new.
        #[test]
        fn whatever_is_asked_is_read_or_refused(object in any_json(), old in any_json()) {
            let asked = request("CREATE", object, old);
            match to_look_at(&asked) {
                Err(_) => {}
                Ok(Some(found)) => prop_assert!(!found.images.is_empty()),
                Ok(None) => prop_assert!(false, "a creation always runs something"),
            }
        }

        /// What is passed over is nothing that anybody looks at.
        #[test]
        fn an_object_as_it_is_kept_is_looked_at_as_the_whole(
            pods in prop::collection::vec(any_pod(), 2), junk in any_json(), wrap in 0..4_usize,
        ) {
            let wrapped = |pod: &Value| {
                let mut spec = pod["spec"].clone();
                spec["serviceAccountName"] = json!("s");
                spec["imagePullSecrets"] = json!([{"name": "p", "x": junk}]);
                spec["junk"] = junk.clone();
                spec["tolerations"] = json!([{"key": "k", "operator": "Exists", "y": 1}]);
                spec["affinity"] = json!({"podAffinity": junk, "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
                        [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]}}});
                match wrap {
                    0 => json!({"metadata": junk, "spec": spec}),
                    1 => json!({"spec": {"template": {"metadata": junk, "spec": spec}}}),
                    2 => json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}}),
                    _ => spec,
                }
            };
            let (object, old) = (wrapped(&pods[0]), wrapped(&pods[1]));
            let text = json!({"request": {"uid": "u", "operation": "UPDATE", "object": object,
                                          "oldObject": old}}).to_string();
            let kept = read(text.as_bytes()).unwrap();
            let whole = request("UPDATE", object, old);
            prop_assert_eq!(to_look_at(&kept).ok(), to_look_at(&whole).ok(), "{}", text);
        }

        #[test]
        fn whatever_comes_is_a_review_or_is_not(bytes in prop::collection::vec(any::<u8>(), 0..200), json in any_json()) {
            prop_assert!(read(&bytes).is_err(), "random bytes are no review");
            let text = json.to_string();
            if let Ok(request) = read(text.as_bytes()) {
                prop_assert!(text.contains(&json!(request.uid).to_string()), "{text}");
            }
        }
    }
}
