//! Credentials are used and never told.

use portolan_agent::api::PrefetchRequest;
use portolan_agent::reason::Reason;
use serde_json::json;

use crate::harness::{Home, ROOM, Registry, from};

const PASSWORD: &str = "correct-horse-battery";
/// `keeper:correct-horse-battery` as basic authentication writes it.
const BASIC: &str = "a2VlcGVyOmNvcnJlY3QtaG9yc2UtYmF0dGVyeQ==";
const HTPASSWD: &str = "keeper:$2b$04$abcdefghijklmnopqrstuupOWRSKKNe562z1DsLEArFuJDHVyRIMa\n";
/// `keeper:wrong-secret`.
const WRONG: &str = "a2VlcGVyOndyb25nLXNlY3JldA==";
const TOKEN: &str = "report-token-that-nobody-may-see";

#[tokio::test(flavor = "multi_thread")]
async fn no_log_at_any_level_holds_a_credential() {
    let registry = Registry::start(Some(HTPASSWD)).await;
    let home = Home::new();
    let credentials = home.path("credentials.json");
    std::fs::write(home.path("token"), TOKEN).unwrap();
    // Nobody takes reports at that address, so that failures are logged too.
    let config = format!(
        "credentials = {:?}\n[report]\nurl = \"http://127.0.0.1:1/\"\ntoken_file = {:?}{ROOM}",
        credentials,
        home.path("token")
    );
    let request: PrefetchRequest = from(json!({ "images": [registry.image()] }));
    for (format, basic, reason) in [
        ("text", WRONG, Some(Reason::ImagePullFailed)),
        ("json", WRONG, Some(Reason::ImagePullFailed)),
        ("text", BASIC, None),
    ] {
        let auths = json!({ "auths": { registry.address.to_string(): { "auth": basic } } });
        std::fs::write(&credentials, auths.to_string()).unwrap();
        let mut command = home.command(&config);
        command.env("PORTOLAN_LOG", "trace").args(["--log-format", format]);
        let agent = home.start_with(command).await;
        let got = agent.client.prefetch(&request).await.unwrap().images.remove(0);
        assert_eq!(got.reason, reason, "{got:?}");
        let log = agent.log();
        let speaks = log.to_lowercase().contains("trace") && log.contains("no root disk");
        assert!(speaks, "trace is on and the refusal is told: {log}");
        let message = got.message.unwrap_or_default();
        for secret in [PASSWORD, BASIC, TOKEN, "wrong-secret", WRONG] {
            assert!(!log.contains(secret), "{secret} is in the log");
            assert!(!message.contains(secret), "{message}");
        }
        assert!(agent.stop().await.success());
    }
}
