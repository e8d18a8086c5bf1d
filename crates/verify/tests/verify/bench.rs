//! An image in a registry, keys, and questions about it.

use std::sync::Arc;

use portolan_core::{Descriptor, Digest, Index, Reference, media_type};
use portolan_registry::images::Place;
use portolan_verify::collect::Limits;
use portolan_verify::decision::{Answer, Question, SubjectAnswer, Verdict};
use portolan_verify::key::PrivateKey;
use portolan_verify::policy::{IndexPolicy, NamedSigner, Rule};
use portolan_verify::sign::{Form, sign};
use portolan_verify::sigstore::{KeyAuthority, LogPolicy};
use portolan_verify::subjects::Wanted;
use portolan_verify::verify::{VerifyError, verify};

use crate::support::fault::FaultServer;
use crate::support::image::{Image, platform, to_json};
use crate::support::setup::client;

pub(crate) struct Bench {
    pub(crate) server: FaultServer,
    pub(crate) image: Image,
    pub(crate) key: PrivateKey,
}

impl Bench {
    /// An index of small images for these platforms.
    pub(crate) fn new(platforms: &[&str]) -> Self {
        Self::holding(Image::multi(platforms, 1))
    }

    pub(crate) fn holding(image: Image) -> Self {
        let server = FaultServer::holding(&image);
        Self { server, image, key: PrivateKey::generate().unwrap() }
    }

    pub(crate) fn reference(&self) -> Reference {
        self.server.reference(":v1")
    }

    pub(crate) fn place(&self) -> Place {
        Place::open(&self.reference(), &client()).unwrap()
    }

    pub(crate) fn top(&self) -> Descriptor {
        self.image.top.clone()
    }

    /// The n-th entry of the index.
    pub(crate) fn entry(&self, n: usize) -> Descriptor {
        self.image.as_index().manifests[n].clone()
    }

    pub(crate) async fn sign(&self, subject: &Descriptor) {
        self.sign_in(subject, Form::Bundle).await;
    }

    pub(crate) async fn sign_in(&self, subject: &Descriptor, form: Form) -> Digest {
        sign(&self.place(), subject, &self.key, form).await.unwrap().artifact
    }

    /// The index and all of its entries.
    pub(crate) async fn sign_all(&self) {
        self.sign(&self.top()).await;
        for entry in self.image.as_index().manifests {
            self.sign(&entry).await;
        }
    }

    pub(crate) fn rule(&self, index_policy: IndexPolicy) -> Rule {
        let authority = KeyAuthority::new(vec![self.key.public().clone()], LogPolicy::Ignore);
        let signer = NamedSigner { name: "release".to_owned(), authority: Arc::new(authority) };
        Rule { index_policy, ..Rule::any_of(vec![signer]).unwrap() }
    }

    pub(crate) async fn ask(
        &self,
        reference: &Reference,
        wanted: &str,
        rule: &Rule,
    ) -> Result<Answer, VerifyError> {
        self.ask_within(&Limits::default(), reference, wanted, rule).await
    }

    pub(crate) async fn ask_within(
        &self,
        limits: &Limits,
        reference: &Reference,
        wanted: &str,
        rule: &Rule,
    ) -> Result<Answer, VerifyError> {
        let wanted = Wanted::of(wanted.split(',').map(|one| one.parse().unwrap())).unwrap();
        let now = jiff::Timestamp::now();
        let question = Question { reference, namespace: None, rule, wanted: &wanted, now };
        verify(&self.place(), &question, limits).await
    }

    /// For these platforms, index and images.
    pub(crate) async fn verify(&self, wanted: &str) -> Answer {
        self.verify_as(wanted, IndexPolicy::Both).await
    }

    pub(crate) async fn verify_as(&self, wanted: &str, policy: IndexPolicy) -> Answer {
        self.ask(&self.reference(), wanted, &self.rule(policy)).await.unwrap()
    }

    pub(crate) async fn trouble(&self, wanted: &str) -> VerifyError {
        let rule = self.rule(IndexPolicy::Both);
        self.ask(&self.reference(), wanted, &rule).await.expect_err("it breaks down")
    }
}

/// An entry for this platform, as `text` writes it.
pub(crate) fn for_platform(text: &str, entry: &Descriptor) -> Descriptor {
    Descriptor { platform: Some(text.parse().unwrap_or_else(|_| platform(text))), ..entry.clone() }
}

/// An index with exactly these entries, which hold what `parts` hold.
pub(crate) fn index_of(entries: Vec<Descriptor>, parts: &[&Image]) -> Image {
    let bytes = to_json(&Index::new(entries));
    let mut image = Image::of_manifest(media_type::OCI_INDEX, &bytes);
    for part in parts {
        image.absorb(part);
    }
    image
}

#[track_caller]
pub(crate) fn is(answer: &Answer, verdict: Verdict) {
    assert_eq!(answer.verdict, verdict, "{}", serde_json::to_string_pretty(answer).unwrap());
    assert_eq!(answer.reasons.is_empty(), verdict == Verdict::Verified, "{answer:?}");
}

pub(crate) fn of<'a>(answer: &'a Answer, subject: &Descriptor) -> &'a SubjectAnswer {
    let own = |one: &&SubjectAnswer| one.digest == subject.digest;
    answer.subjects.iter().find(own).unwrap_or_else(|| panic!("{} is no subject", subject.digest))
}

pub(crate) fn digests(answer: &Answer) -> Vec<Digest> {
    answer.subjects.iter().map(|one| one.digest).collect()
}

/// The whole text of an error: each cause once, outermost first.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
