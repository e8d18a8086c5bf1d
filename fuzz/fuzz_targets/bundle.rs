//! Whatever a bundle is, it is judged; accepted is only what the recorded identities signed.
#![no_main]

mod sigstore;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use portolan_core::{Descriptor, Digest, media_type};
use portolan_verify::authority::{Accepted, Judgement};
use portolan_verify::evidence::Content;
use portolan_verify::sigstore::{KeylessAuthority, KeylessOptions, TrustedRoot};
use portolan_verify::subject::Subject;

const PUBLIC: &[u8] = include_bytes!("../../fixtures/sigstore/public-good.json");
const STAGING: &[u8] = include_bytes!("../../fixtures/sigstore/staging.json");
const PACKAGE: &str = "sha256:54303491a8418fbed24344b513546182c29b43bf282ceb433af65e2299f9271f";
const WORKFLOW: &str =
    "https://github.com/prefix-dev/sigstore-example/.github/workflows/action.yaml@refs/heads/main";
const ACTIONS: &str = "https://token.actions.githubusercontent.com";
const LOGIN: &str = "https://github.com/login/oauth";

/// What was recorded of Sigstore's own instances: whom it is by, of what it speaks, what it says.
struct Recorded {
    /// One that asks for all there is, and those that ask for less.
    authorities: [KeylessAuthority; 3],
    subject: Subject,
    accepted: Accepted,
}

impl Recorded {
    fn new(root: &[u8], (who, by): (&str, &str), digest: Digest, bundle: &'static [u8]) -> Self {
        let root = TrustedRoot::from_json(root).expect("a root");
        let options = [KeylessOptions::default(), sigstore::TIMESTAMPS, sigstore::LENIENT];
        let authorities = options.map(|options| sigstore::keyless(who, by, root.clone(), options));
        let subject = sigstore::subject(Descriptor::new(media_type::OCI_INDEX, digest, 1));
        match sigstore::judge(&authorities[0], &subject, Content::Bundle(bundle.into())) {
            Judgement::Accepted(accepted) => Self { authorities, subject, accepted },
            Judgement::Refused(refusal) => panic!("it was recorded: {refusal}"),
        }
    }
}

static RECORDED: LazyLock<[Recorded; 3]> = LazyLock::new(|| {
    let package: Digest = PACKAGE.parse().expect("a digest");
    let file = Digest::sha256(include_bytes!("../../fixtures/sigstore/blob.txt"));
    let conda = include_bytes!("../../fixtures/sigstore/conda.json");
    let blob = include_bytes!("../../fixtures/sigstore/blob.json");
    let second = include_bytes!("../../fixtures/sigstore/conda-rekor2.json");
    [
        Recorded::new(PUBLIC, (WORKFLOW, ACTIONS), package, conda),
        Recorded::new(PUBLIC, ("w.vollprecht@gmail.com", LOGIN), file, blob),
        Recorded::new(STAGING, ("jku@goto.fi", LOGIN), package, second),
    ]
});

fuzz_target!(|bytes: &[u8]| {
    let content = Content::Bundle(bytes.to_vec().into());
    sigstore::is_refused(&content);
    for Recorded { authorities, subject, accepted } in RECORDED.iter() {
        for authority in authorities {
            let judged = sigstore::judge(authority, subject, content.clone());
            let Judgement::Accepted(found) = judged else { continue };
            assert_eq!(found.claim, accepted.claim, "it was never signed");
            let who = (accepted.signer.clone(), accepted.issuer.clone());
            assert_eq!((found.signer, found.issuer), who);
        }
    }
});
