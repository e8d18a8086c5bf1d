//! Builds on a real API server and a real Tekton: what its definitions take and refuse, what runs become,
//! and what a controller does that is killed, doubled or not alone. It is allowed what
//! `deploy/controller/rbac.yaml` allows, and nothing else.

mod controllers;
mod definitions;
mod literal;
mod objects;
mod refused;
mod runs;
