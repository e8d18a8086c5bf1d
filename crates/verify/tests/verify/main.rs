//! Signed images in a registry that really speaks the protocol, and breaks it on command: what is
//! verified, what is refused and why, and what is an error and never taken for "not signed".
//!
//! The cases of the acceptance list and where they are tested: here in `platforms`, `attacks` and
//! `faults`; in `tests/server`, as Gatekeeper sees them; and beside the code.
//!
//! | case | here | elsewhere |
//! |---|---|---|
//! | 1 index and image signed | `a_signed_index_and_a_signed_image_pass_and_both_are_told` | server `case_1…` |
//! | 2, 3 one of both | `the_index_policy_says_what_must_be_signed` | server `case_2…`, `case_3…` |
//! | 4 another platform signed | `an_unsigned_image_of_another_platform_is_refused_by_name` | server `case_4…` |
//! | 5 a platform that is absent | `a_platform_that_is_not_there_is_refused_with_what_is` | server `case_5…` |
//! | 6 a plain key | | server `case_6…` |
//! | 7 a single manifest | `a_single_manifest_is_its_own_only_subject` | server `case_7…` |
//! | 8 Docker's list | `a_docker_manifest_list_is_an_index` | |
//! | 9 an index in an index | `indexes_inside_indexes_are_opened` | |
//! | 10, 11 attestations, no platform | `attestations_are_passed_over_and_a_missing_platform_is_read_from_the_config` | |
//! | 12–14 variants, Windows, half a platform | `all_variants_that_a_machine_might_take_must_be_signed` | |
//! | 15 a signature of another image | `a_signature_of_another_image_does_not_count` | |
//! | 16 an index that is not its digest | `an_index_that_is_not_what_its_digest_says_is_an_error` | server `case_16…` |
//! | 17 4 MiB, 10,000 entries, depth | `an_index_without_end_has_one`, `an_index_beyond_all_bounds_is_refused` | |
//! | 18 a child that is listed twice | `a_digest_that_is_listed_twice_is_verified_once` | |
//! | 19, 20, 22 what keys may be | | `contract/tests.rs`, server `case_19…`, `case_20…`, `case_22…` |
//! | 21 keys that are asked twice | | server `case_21…` |
//! | 23 a tag that moves | `a_tag_is_asked_for_once` | server `case_23…` |
//! | 24, 25 throttling, deadlines | | server `case_24…`, `case_25…` |
//! | 26 mutation | | server `case_26…` |
//! | 27, 28 caches, many at once | | server `case_27…`, `case_28…` |
//! | 29 certificates of clients | | server `case_29…` |
//! | 30 pods | | `pod/tests/mod.rs` (`a_table_of_pods`), `template/tests.rs` |
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../../registry/tests/support/mod.rs"]
mod support;

#[path = "../notation/mint.rs"]
#[allow(dead_code, reason = "the tests of envelopes use the rest")]
mod mint;
#[path = "../support/mod.rs"]
mod sigstore;

mod attacks;
mod attested;
mod bench;
mod faults;
mod kinds;
mod platforms;
mod policies;
mod rego;
