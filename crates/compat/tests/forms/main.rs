//! Every form that a plugin's data can have, on one host and its neighbours.

mod areas;
mod five;
mod host;
mod shown;
mod wrong;
