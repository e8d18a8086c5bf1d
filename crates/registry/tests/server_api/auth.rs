use portolan_registry::server::{Config, HtpasswdError, ServeError, Server};
use reqwest::Method;

use crate::support::{Registry, code, loopback, refusal, text};

#[tokio::test]
async fn only_known_users_with_their_password_come_in() {
    let root = tempfile::tempdir().unwrap();
    let passwords = root.path().join("htpasswd");
    let hash = bcrypt::hash("right", 4).unwrap();
    std::fs::write(&passwords, format!("ann:{}\n", hash.replacen("$2b$", "$2y$", 1))).unwrap();
    let mut config = Config::new(root.path().join("store"), loopback());
    config.htpasswd = Some(passwords);
    let registry = Registry::with(config).await;

    for path in ["/v2/", "/v2/a/tags/list", "/v2/a/manifests/t"] {
        let refused = registry.get(path).await;
        assert!(text(&refused, "www-authenticate").starts_with("Basic realm="), "{path}");
        assert_eq!(refusal(refused).await, code(401, "UNAUTHORIZED"), "{path}");
    }
    for (user, password) in [("ann", "wrong"), ("bob", "right"), ("", ""), ("ann", "")] {
        let refused = registry.ask(Method::GET, "/v2/").basic_auth(user, Some(password));
        let refused = refused.send().await.unwrap();
        assert_eq!(refusal(refused).await, code(401, "UNAUTHORIZED"), "{user}");
    }
    let bearer = registry.ask(Method::GET, "/v2/").bearer_auth("right").send().await.unwrap();
    assert_eq!(bearer.status(), 401);
    let push = registry.ask(Method::POST, "/v2/a/blobs/uploads/").send().await.unwrap();
    assert_eq!(push.status(), 401);

    for _ in 0..3 {
        let let_in = registry.ask(Method::GET, "/v2/").basic_auth("ann", Some("right"));
        assert_eq!(let_in.send().await.unwrap().status(), 200);
    }
    let push = registry.ask(Method::POST, "/v2/a/blobs/uploads/").basic_auth("ann", Some("right"));
    assert_eq!(push.send().await.unwrap().status(), 202);
}

#[tokio::test]
async fn a_server_without_usable_passwords_does_not_start() {
    let root = tempfile::tempdir().unwrap();
    let passwords = root.path().join("htpasswd");
    let start = || {
        let mut config = Config::new(root.path().join("store"), loopback());
        config.htpasswd = Some(passwords.clone());
        Server::bind(config)
    };
    let missing = start().await.unwrap_err();
    assert!(matches!(missing, ServeError::Htpasswd(HtpasswdError::Read { .. })));
    std::fs::write(&passwords, "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n").unwrap();
    let weak = start().await.unwrap_err();
    assert!(matches!(weak, ServeError::Htpasswd(HtpasswdError::Hash { line: 1, .. })));
    std::fs::write(&passwords, "x".repeat(2 * 1024 * 1024)).unwrap();
    let large = start().await.unwrap_err();
    assert!(matches!(large, ServeError::Htpasswd(HtpasswdError::TooLarge { .. })));
}
