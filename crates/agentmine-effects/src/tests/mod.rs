//! Tests of effects with a real store and a forge in memory.

mod completions;
mod dashboard_texts;
mod dashboards;
mod drafts;
mod ends;
mod errors;
mod forge;
mod label_races;
mod labels;
mod late_results;
mod leases;
mod moved;
mod orphans;
mod pull_requests;
mod relay;
mod remarks;
mod rounds;
mod second_look;
mod status;
mod texts;
mod world;
