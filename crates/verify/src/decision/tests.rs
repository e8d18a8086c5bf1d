use std::sync::Arc;

use portolan_core::{Descriptor, Digest, Platform, media_type};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::authority::{Authority, Refusal, RefusalCode};
use crate::policy::{NamedSigner, Package, SbomRule, Threshold};

/// Nobody is asked here: what they say is given.
#[derive(Debug)]
struct Silent;

impl Authority for Silent {
    fn judge(&self, _: &Subject, _: &Evidence, _: Timestamp) -> Option<Judgement> {
        None
    }
}

const NAMES: [&str; 3] = ["a", "b", "c"];

/// All of some, and a number of others.
type Parts = (Vec<usize>, (Vec<usize>, usize));

fn rule((all, (any, count)): Parts, index_policy: IndexPolicy) -> Rule {
    let signers =
        NAMES.map(|name| NamedSigner { name: name.to_owned(), authority: Arc::new(Silent) });
    let names = |of: Vec<usize>| of.into_iter().map(|n| NAMES[n].to_owned()).collect::<Vec<_>>();
    let any = names(any);
    let count = count.min(any.len());
    let require = Requirement::new(names(all), Threshold::new(any, count));
    Rule { require, index_policy, ..Rule::any_of(signers.to_vec()).unwrap() }
}

fn subject(n: usize) -> Subject {
    let kind = if n == 0 { Kind::Index } else { Kind::Manifest };
    Subject {
        descriptor: Descriptor::of(media_type::OCI_MANIFEST, &[u8::try_from(n).unwrap()]),
        kind,
        platform: (n > 0).then(|| Platform::new("linux", &format!("cpu{n}"))),
    }
}

/// Who accepted a signature of whom, or refused it.
fn judged((signer, identity, accepted): (usize, u8, bool)) -> Judged {
    let judgement = match accepted {
        true => Judgement::Accepted(Accepted {
            signer: format!("key {identity}"),
            issuer: None,
            signed_at: None,
            claim: Claim::Signature,
            checks: Vec::new(),
            warnings: Vec::new(),
        }),
        false => Judgement::Refused(Refusal {
            code: RefusalCode::BadSignature,
            message: "no".to_owned(),
        }),
    };
    Judged {
        artifact: Digest::sha256(&[identity]),
        carrier: Carrier::Referrer,
        kind: SignatureKind::Bundle,
        signer: NAMES[signer].to_owned(),
        judgement,
    }
}

type Votes = Vec<Vec<(usize, u8, bool)>>;

/// The verdict over an index (the first votes) and as many images as there are more, of which those
/// in `asked` are asked about.
fn verdict(rule: &Rule, votes: &Votes, asked: &[usize], has_index: bool) -> Verdict {
    let manifests: Vec<_> = asked.iter().map(|n| subject(*n)).collect();
    let image = Subjects::of(has_index.then(|| subject(0)), manifests).expect("some image");
    let examined: Vec<_> = needed(&image, rule.index_policy)
        .into_iter()
        .map(|one| {
            let n = (0..votes.len()).find(|n| subject(*n).descriptor == one.descriptor).unwrap();
            Examined {
                subject: one.clone(),
                judged: votes[n].iter().copied().map(judged).collect(),
                documents: Vec::new(),
                passed_over: Vec::new(),
            }
        })
        .collect();
    let reference = "r.example/app:1".parse().unwrap();
    let wanted = Wanted::all();
    let now = Timestamp::UNIX_EPOCH;
    let question = Question { reference: &reference, namespace: None, rule, wanted: &wanted, now };
    let answer = decide(&question, &image, &examined);
    assert_eq!(answer.reasons.is_empty(), answer.verdict == Verdict::Verified);
    answer.verdict
}

fn policies() -> impl Strategy<Value = IndexPolicy> {
    use IndexPolicy::{Any, Both, Index, Platform};
    prop::sample::select(vec![Both, Any, Index, Platform])
}

fn rules() -> impl Strategy<Value = Rule> {
    let all = prop::sample::subsequence(vec![0, 1, 2], 0..=2);
    let any = prop::sample::subsequence(vec![0, 1, 2], 1..=3);
    ((all, (any, 1..4_usize)), policies()).prop_map(|(parts, policy)| rule(parts, policy))
}

fn votes() -> impl Strategy<Value = Votes> {
    let vote = (0..3_usize, 0..3_u8, prop::bool::weighted(0.8));
    prop::collection::vec(prop::collection::vec(vote, 0..6), 4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn taking_a_signature_away_never_turns_a_no_into_a_yes(
        rule in rules(), votes in votes(), at in any::<prop::sample::Index>(),
        which in any::<prop::sample::Index>(), has_index in any::<bool>(),
    ) {
        let mut fewer = votes.clone();
        let list = &mut fewer[at.index(4)];
        prop_assume!(!list.is_empty());
        list.remove(which.index(list.len()));
        let asked = [1, 2, 3];
        if verdict(&rule, &votes, &asked, has_index) == Verdict::Refused {
            prop_assert_eq!(verdict(&rule, &fewer, &asked, has_index), Verdict::Refused);
        }
    }

    #[test]
    fn asking_for_one_more_platform_never_turns_a_no_into_a_yes(
        rule in rules(), votes in votes(), has_index in any::<bool>(),
    ) {
        for asked in [&[1][..], &[2], &[3], &[1, 2], &[1, 3], &[2, 3]] {
            if verdict(&rule, &votes, asked, has_index) == Verdict::Refused {
                for one in [1, 2, 3].into_iter().filter(|n| !asked.contains(n)) {
                    let more = [asked, &[one]].concat();
                    prop_assert_eq!(verdict(&rule, &votes, &more, has_index), Verdict::Refused);
                }
            }
        }
    }

    #[test]
    fn without_an_accepted_signature_nothing_passes(
        rule in rules(), mut votes in votes(), has_index in any::<bool>(),
    ) {
        votes.iter_mut().flatten().for_each(|vote| vote.2 = false);
        prop_assert_eq!(verdict(&rule, &votes, &[1, 2, 3], has_index), Verdict::Refused);
    }

    #[test]
    fn a_yes_has_every_signer_where_the_policy_asks_for_all(votes in votes()) {
        let rule = rule((vec![0, 1, 2], (vec![], 0)), IndexPolicy::Both);
        if verdict(&rule, &votes, &[1, 2, 3], true) == Verdict::Verified {
            for one in &votes {
                for signer in 0..3 {
                    prop_assert!(one.iter().any(|vote| vote.0 == signer && vote.2));
                }
            }
        }
    }
}

#[test]
fn the_four_index_policies() {
    use IndexPolicy::{Any, Both, Index, Platform};
    let yes = vec![(0, 0, true)];
    let no = Vec::new();
    for (index, first, second, passing) in [
        (&yes, &yes, &yes, &[Both, Any, Index, Platform][..]),
        (&yes, &yes, &no, &[Any, Index]),
        (&yes, &no, &no, &[Any, Index]),
        (&no, &yes, &yes, &[Any, Platform]),
        (&no, &yes, &no, &[]),
        (&no, &no, &no, &[]),
    ] {
        let votes = vec![index.clone(), first.clone(), second.clone()];
        for policy in [Both, Any, Index, Platform] {
            let rule = rule((vec![0], (vec![], 0)), policy);
            let found = verdict(&rule, &votes, &[1, 2], true) == Verdict::Verified;
            assert_eq!(found, passing.contains(&policy), "{policy:?} {votes:?}");
        }
    }
}

#[test]
fn what_nobody_examined_does_not_pass() {
    let image = Subjects::of(Some(subject(0)), vec![subject(1)]).unwrap();
    let reference = "r.example/app:1".parse().unwrap();
    let wanted = Wanted::all();
    for policy in [IndexPolicy::Both, IndexPolicy::Any, IndexPolicy::Index, IndexPolicy::Platform] {
        let rule = rule((vec![0], (vec![], 0)), policy);
        let now = Timestamp::UNIX_EPOCH;
        let question =
            Question { reference: &reference, namespace: None, rule: &rule, wanted: &wanted, now };
        assert_eq!(decide(&question, &image, &[]).verdict, Verdict::Refused);
    }
    assert!(Subjects::of(Some(subject(0)), Vec::new()).is_none(), "no image, no question");
}

#[test]
fn what_a_list_of_cyclonedx_is_about_is_one_of_its_parts() {
    let rule = SbomRule {
        licenses: vec!["gpl-3.0-only".to_owned()],
        packages: vec![Package { name: "log4j-core".to_owned(), version: None }],
        allow_unsigned: false,
    };
    let found = |about: Value| {
        let bom =
            json!({"bomFormat": "CycloneDX", "metadata": {"component": about}, "components": []});
        findings_in_sbom(&rule, &bom).map(|found| found.into_iter().map(|one| one.0).collect())
    };
    let gpl = json!([{"license": {"id": "GPL-3.0-only"}}]);
    let log4j = json!({"name": "log4j-core", "version": "2"});
    for (about, told) in [
        (json!(null), Vec::new()),
        (json!({"name": "app"}), Vec::new()),
        (log4j.clone(), vec!["log4j-core 2".to_owned()]),
        (json!({"name": "app", "licenses": gpl}), vec!["app under gpl-3.0-only".to_owned()]),
        (json!({"name": "app", "components": [log4j]}), vec!["log4j-core 2".to_owned()]),
    ] {
        assert_eq!(found(about.clone()), Ok(told), "{about}");
    }
    for wrong in [json!("app"), json!([]), json!({"name": "app", "components": "none"})] {
        assert!(found(wrong.clone()).is_err(), "{wrong}");
    }
}
