use super::*;

fn read(text: &str) -> (Option<String>, String, Vec<String>) {
    let key = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(key.original(), text);
    let platforms = key.platforms().iter().map(ToString::to_string).collect();
    (key.namespace().map(str::to_owned), key.reference().to_string(), platforms)
}

/// Case 19 of the acceptance list, and the forms without a namespace.
#[test]
fn keys_are_plain_or_json_with_or_without_a_namespace() {
    let image = "r.example/app:1";
    for (text, namespace, platforms) in [
        ("r.example/app:1", None, &[][..]),
        ("[team]r.example/app:1", Some("team"), &[]),
        (r#"{"reference":"r.example/app:1"}"#, None, &[]),
        (r#"{"arch":"arm64","os":"linux","reference":"r.example/app:1"}"#, None, &["linux/arm64"]),
        (r#"{"reference":"r.example/app:1","arch":"AARCH64"}"#, None, &["*/arm64"]),
        (r#"{"reference":"r.example/app:1","os":"windows"}"#, None, &["windows/*"]),
        (r#"{"reference":"r.example/app:1","os":"linux","arch":"armhf"}"#, None, &["linux/arm/v7"]),
        (
            r#"{"reference":"r.example/app:1","os":"linux","arch":"arm","variant":"7"}"#,
            None,
            &["linux/arm/v7"],
        ),
        (
            r#"{"reference":"r.example/app:1","os":"windows","arch":"x86-64","osVersion":"10.0.20348"}"#,
            None,
            &["windows(10.0.20348)/amd64"],
        ),
        (
            r#"[team] {"reference":"r.example/app:1","platforms":[{"os":"linux","arch":"i386"},{"arch":"armel"}]}"#,
            Some("team"),
            &["linux/386", "*/arm/v6"],
        ),
        (r#"{"reference":"r.example/app:1","namespace":"team"}"#, Some("team"), &[]),
        (r#"[team]{"reference":"r.example/app:1","namespace":"team"}"#, Some("team"), &[]),
    ] {
        let expected: Vec<_> = platforms.iter().map(|&one| one.to_owned()).collect();
        assert_eq!(
            read(text),
            (namespace.map(str::to_owned), image.to_owned(), expected),
            "{text}"
        );
    }
}

/// Case 20.
#[test]
fn what_is_no_question_is_a_bad_key() {
    for (text, part) in [
        ("", "empty"),
        ("{", "JSON"),
        ("{}", "missing field `reference`"),
        (r#"{"reference":""}"#, "empty"),
        (r#"{"reference":"r.example/APP"}"#, "repository"),
        (r#"{"reference":7}"#, "invalid type"),
        (r#"{"reference":null}"#, "invalid type"),
        (r#"{"reference":"r.example/a","os":null}"#, "invalid type"),
        (r#"{"reference":"r.example/a","os":["linux"]}"#, "invalid type"),
        (r#"{"reference":"r.example/a","Os":"linux"}"#, "unknown field `Os`"),
        (r#"{"reference":"r.example/a","architecture":"amd64"}"#, "unknown field"),
        (r#"{"reference":"r.example/a","os":"linux","os":"windows"}"#, "duplicate field `os`"),
        (r#"{"reference":"r.example/a","reference":"r.example/b"}"#, "duplicate field"),
        (r#"{"reference":"r.example/a"} {}"#, "trailing"),
        (r#"{"reference":"r.example/a","platforms":[]}"#, "0 members"),
        (r#"{"reference":"r.example/a","platforms":[{"os":"linux","x":1}]}"#, "unknown field"),
        (r#"{"reference":"r.example/a","platforms":[{"os":"linux"}],"arch":"arm64"}"#, "both"),
        (r#"{"reference":"r.example/a","platforms":[{"os":"linux"}],"variant":"v7"}"#, "both"),
        (r#"{"reference":"r.example/a","os":""}"#, "no part of a platform"),
        (r#"{"reference":"r.example/a","os":"li.nux"}"#, "no part of a platform"),
        (r#"{"reference":"r.example/a","arch":"*"}"#, "no part of a platform"),
        (r#"{"reference":"r.example/a","arch":"amd64/v2"}"#, "no part of a platform"),
        (r#"{"reference":"r.example/a","variant":"v8"}"#, "needs arch"),
        (r#"{"reference":"r.example/a","osVersion":"10"}"#, "needs os"),
        (r#"["r.example/a"]"#, "[namespace]"),
        ("[]r.example/a", "[namespace]"),
        ("[Team]r.example/a", "[namespace]"),
        ("[a/b]r.example/a", "[namespace]"),
        (r#"[a]{"reference":"r.example/a","namespace":"b"}"#, "two namespaces"),
        (r#"{"reference":"r.example/a","namespace":"../x"}"#, "[namespace]"),
        ("oci:/etc", "directory"),
        (r#"{"reference":"OCI:/etc:1"}"#, "directory"),
        (" r.example/a", "host"),
        ("[a][b]r.example/a", "host"),
    ] {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    let long = format!("r.example/{}", "a".repeat(MAX_KEY));
    assert!(matches!(parse(&long), Err(BadKey::TooLong(_))));
    let many = vec![r#"{"os":"linux"}"#; MAX_PLATFORMS + 1].join(",");
    let many = format!(r#"{{"reference":"r.example/a","platforms":[{many}]}}"#);
    assert!(matches!(parse(&many), Err(BadKey::Platforms(_))));
}

/// Case 22.
#[test]
fn a_key_is_echoed_byte_for_byte() {
    for text in [
        "{\n \"reference\" : \"r.example/app:1\"\r\n}\n",
        "  {\"reference\":\"r.example/app:1\"}  ",
        "\t[team]\n{\"reference\":\"r.example/app\\u003a1\"}",
    ] {
        assert_eq!(parse(text).unwrap().original(), text);
        assert_eq!(parse(text).unwrap().reference().to_string(), "r.example/app:1");
    }
}

proptest::proptest! {
    /// What a key names prints as text that reads back the same.
    #[test]
    fn platforms_of_keys_have_a_name(
        os in "[a-zA-Z0-9_-]{1,8}|linux|windows|macOS",
        arch in "[a-zA-Z0-9_.-]{1,8}|armhf|arm|ARM|i686|x86_64|aarch64|ppcle64",
        variant in proptest::option::of("v?[0-9]|[a-zA-Z0-9_.-]{1,32}"),
        version in proptest::option::of("[a-zA-Z0-9_.-]{1,32}"),
        whole in proptest::bool::ANY,
    ) {
        let mut key = serde_json::json!({"reference": "r.example/a", "os": os});
        if whole {
            key["arch"] = arch.into();
            if let Some(variant) = variant {
                key["variant"] = variant.into();
            }
        }
        if let Some(version) = version {
            key["osVersion"] = version.into();
        }
        let key = parse(&key.to_string()).unwrap();
        let [platform] = key.platforms() else { panic!("{key:?}") };
        let printed = platform.to_string();
        let again = printed.parse::<PartialPlatform>();
        proptest::prop_assert_eq!(again.as_ref(), Ok(platform));
    }
}
