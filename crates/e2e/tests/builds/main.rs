//! Builds from end to end: Builds of the command line, the controller, Tekton, pods with the shipped image and
//! strategies, and what is in the registry afterwards, run.

mod journeys;
mod logins;
mod sources;
mod strategies;
mod works;
