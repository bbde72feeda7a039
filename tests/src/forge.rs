//! A stateful server that speaks GitHub's REST API, with a real git backend behind it.
