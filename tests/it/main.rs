//! Story tests: the processes as users run them, with real RabbitMQ, Postgres, Docker and git. Only
//! the forge and the model are simulated. `tests/run` starts what they need.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "all of this is tests; clippy spares only the functions marked as such"
)]

mod agents;
mod app_installations;
mod app_limits;
mod apps;
mod architecture;
mod attacks;
mod bench;
mod branch_names;
mod branches;
mod by_deliveries;
mod canaries;
mod capacity;
mod chaos;
mod commands;
mod commands_on_pulls;
mod confidential;
mod control;
mod conversation;
mod conversion;
mod dashboard_issue;
mod deliveries;
mod embedded;
mod endpoint;
mod ends;
mod everyday;
mod failpoints;
mod failures;
mod fleet_mcp;
mod foreign;
mod forge_clients;
mod forged;
mod forges;
mod gate;
mod gitlab;
mod graphql;
mod image_contents;
mod images;
mod imports;
mod interrupted;
mod item_faults;
mod kubernetes;
mod limited_writes;
mod limits;
mod maintainer;
mod mcp;
mod memory;
mod messages;
mod mirrors;
mod model_servers;
mod observability;
mod operator;
mod organizations;
mod outages;
mod output;
mod pause_file;
mod paused;
mod people;
mod person_tasks;
mod progress;
mod project_tokens;
mod queued_items;
mod quick_actions;
mod rebases;
mod red_pipelines;
mod remote_engine;
mod restore;
mod reviewed;
mod rig;
mod round_branches;
mod round_checks;
mod round_ends;
mod rounds;
mod same_numbers;
mod secret_files;
mod secrets;
mod servers;
mod standstill;
mod story;
mod takeover;
mod totals;
mod traces;
mod trackers;
mod untaken;
mod upgrade;
mod verify;
mod verifying;
mod warm;
mod webhooks;
mod who;
