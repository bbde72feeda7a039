//! The attack suite, a test for each family and kind of sandbox (tests/README.md).

use std::path::Path;

use agentmine_tests::attack::{Cell, Family, Report, Selection, differential, run_apart};

/// Runs a family in a kind of sandbox. Fails with the table if an attack succeeded, or could not be carried out.
async fn assert_blocked(cell: Cell, family: Family) {
    let selection = Selection {
        families: vec![family],
        names: Vec::new(),
    };
    let mut report = Report::default();
    let program = Path::new(env!("CARGO_BIN_EXE_attacks"));
    report.add(run_apart(program, cell, &selection).await.unwrap());
    assert!(!report.findings().is_empty(), "no attack in {family}");
    assert!(report.is_clean(), "\n{report}");
}

/// One test for each family.
macro_rules! blocked {
    ($cell:ident: $($name:ident = $family:ident),* $(,)?) => {
        $(#[tokio::test]
        async fn $name() {
            assert_blocked(Cell::$cell, Family::$family).await;
        })*
    };
}

mod docker {
    use super::*;

    blocked![Docker:
        nothing_escapes = Escape,
        the_host_is_out_of_reach = Host,
        the_guest_cannot_be_played = Guest,
        the_network_is_out_of_reach = Network,
        no_credential_is_found = Credentials,
        only_the_own_branch_is_written = GitProxy,
        the_editor_stays_in_the_workspace = FileTools,
        what_fills_up_is_the_sandbox = Exhaustion,
    ];
}

mod bubblewrap {
    use super::*;

    blocked![Bubblewrap:
        nothing_escapes = Escape,
        the_host_is_out_of_reach = Host,
        the_network_is_out_of_reach = Network,
        the_worker_runs_no_program_of_a_repository = WorkerGit,
        text_stays_text = Injection,
        what_an_operator_exposes_is_closed = Operator,
        no_credential_is_found = Credentials,
        the_editor_stays_in_the_workspace = FileTools,
    ];
}

mod landlock {
    use super::*;

    blocked![Landlock:
        nothing_escapes = Escape,
        the_host_is_out_of_reach = Host,
        the_network_is_out_of_reach = Network,
        no_credential_is_found = Credentials,
        the_editor_stays_in_the_workspace = FileTools,
    ];
}

#[tokio::test]
async fn the_gateway_lets_through_what_git_would_do_and_records_what_moved() {
    agentmine_runtime::tls::install_default_provider();
    let found = differential(3, 120).await.unwrap();
    assert_eq!(found.faults, Vec::<String>::new());
    // The comparison says something: some were carried out by git, and some of these were let through.
    assert!(
        found.let_through > 0 && found.carried_out_by_git > found.let_through,
        "{found:?}"
    );
}

/// Each check of the family notices what is open.
#[tokio::test]
async fn attacks_on_what_an_operator_exposes_succeed_on_what_is_open() {
    let shown = agentmine_tests::attack::demonstrate_operator()
        .await
        .unwrap();
    assert!(shown.len() >= 10);
    let failed: Vec<_> = shown.iter().filter(|it| it.succeeded.is_err()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}
