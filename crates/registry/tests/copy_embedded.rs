//! Copies to, from and within the embedded registry.

mod support;

use support::embedded::Embedded;

copy_scenarios!(Some(Embedded::start().await));
