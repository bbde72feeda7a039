//! The attack suite, a test for each family and kind of sandbox (tests/README.md).

use std::path::Path;

use agentmine_tests::attack::{
    Cell, Family, Lacking, Report, Selection, Table, all, build_apart, demonstrate, differential,
    run_apart,
};

/// Of the attacks by a guest that an attacker has replaced, most of which take their whole time, these are always run.
const BY_A_HOSTILE_GUEST: &[&str] = &[
    "guest_sends_single_bytes_on_many_streams",
    "guest_sends_a_result_larger_than_its_limit",
];

/// Runs a family in a kind of sandbox, but for a replaced guest.
async fn assert_blocked(cell: Cell, family: Family) {
    let names = all().into_iter().filter(|it| it.family == family);
    let names = names.map(|it| it.name);
    let names = names.filter(|name| !name.starts_with("guest_sends_"));
    assert_all_blocked(cell, names.collect()).await;
}

/// Runs attacks in a kind of sandbox. Fails with the table if an attack succeeded, or could not be carried out.
async fn assert_all_blocked(cell: Cell, names: Vec<String>) {
    let selection = Selection {
        families: Vec::new(),
        names,
    };
    let mut report = Report::default();
    let program = Path::new(env!("CARGO_BIN_EXE_attacks"));
    report.add(run_apart(program, cell, &selection).await.unwrap());
    assert!(!report.findings().is_empty(), "no attack in {cell}");
    assert!(report.is_clean(), "\n{report}");
}

/// One test for each family.
macro_rules! blocked {
    ($cell:ident: $($(#[$attribute:meta])* $name:ident = $family:ident),* $(,)?) => {
        $($(#[$attribute])*
        #[tokio::test]
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
        text_stays_text = Injection,
    ];
}

mod bubblewrap {
    use super::*;

    blocked![Bubblewrap:
        nothing_escapes = Escape,
        the_host_is_out_of_reach = Host,
        the_guest_cannot_be_played = Guest,
        the_network_is_out_of_reach = Network,
        no_credential_is_found = Credentials,
        #[ignore = "takes minutes in all (tests/README.md)"]
        only_the_own_branch_is_written = GitProxy,
        the_worker_runs_no_program_of_a_repository = WorkerGit,
        the_editor_stays_in_the_workspace = FileTools,
        #[ignore = "takes minutes in all (tests/README.md)"]
        what_fills_up_is_the_sandbox = Exhaustion,
        text_stays_text = Injection,
        what_an_operator_exposes_is_closed = Operator,
    ];
}

mod bubblewrap_unprivileged {
    use super::*;

    blocked![BubblewrapUnprivileged:
        nothing_escapes = Escape,
        the_host_is_out_of_reach = Host,
        #[ignore = "takes minutes in all (tests/README.md)"]
        the_guest_cannot_be_played = Guest,
        the_network_is_out_of_reach = Network,
        no_credential_is_found = Credentials,
        #[ignore = "takes minutes in all (tests/README.md)"]
        only_the_own_branch_is_written = GitProxy,
        #[ignore = "takes minutes in all (tests/README.md)"]
        the_worker_runs_no_program_of_a_repository = WorkerGit,
        #[ignore = "takes minutes in all (tests/README.md)"]
        the_editor_stays_in_the_workspace = FileTools,
        #[ignore = "takes minutes in all (tests/README.md)"]
        what_fills_up_is_the_sandbox = Exhaustion,
        text_stays_text = Injection,
    ];
}

mod landlock {
    use super::*;

    blocked![Landlock:
        nothing_escapes = Escape,
        the_host_is_out_of_reach = Host,
        #[ignore = "takes minutes in all (tests/README.md)"]
        the_guest_cannot_be_played = Guest,
        the_network_is_out_of_reach = Network,
        no_credential_is_found = Credentials,
        #[ignore = "takes minutes in all (tests/README.md)"]
        only_the_own_branch_is_written = GitProxy,
        the_editor_stays_in_the_workspace = FileTools,
        #[ignore = "takes minutes in all (tests/README.md)"]
        what_fills_up_is_the_sandbox = Exhaustion,
        text_stays_text = Injection,
    ];
}

mod landlock_unprivileged {
    use super::*;

    blocked![LandlockUnprivileged:
        nothing_escapes = Escape,
        the_host_is_out_of_reach = Host,
        #[ignore = "takes minutes in all (tests/README.md)"]
        the_guest_cannot_be_played = Guest,
        the_network_is_out_of_reach = Network,
        no_credential_is_found = Credentials,
        #[ignore = "takes minutes in all (tests/README.md)"]
        only_the_own_branch_is_written = GitProxy,
        #[ignore = "takes minutes in all (tests/README.md)"]
        the_editor_stays_in_the_workspace = FileTools,
        #[ignore = "takes minutes in all (tests/README.md)"]
        what_fills_up_is_the_sandbox = Exhaustion,
        text_stays_text = Injection,
    ];
}

/// Where no cgroup holds the limit, memory of every kind counts that processes can take without the kernel's help.
#[tokio::test]
async fn memory_of_every_kind_is_limited_without_a_cgroup() {
    let names = [
        "take_all_memory",
        "take_memory_in_many_processes",
        "take_memory_that_is_shared",
        "take_memory_in_nameless_files",
        "take_memory_by_key",
    ];
    let names = names.map(str::to_owned).into();
    assert_all_blocked(Cell::BubblewrapUnprivileged, names).await;
}

#[tokio::test]
async fn sanitizers_work_for_a_worker_without_rights() {
    let names = ["C++ with ASan and UBSan", "ThreadSanitizer"].map(str::to_owned);
    let program = Path::new(env!("CARGO_BIN_EXE_attacks"));
    let built = build_apart(program, Cell::BubblewrapUnprivileged, &names).await;
    let built = built.unwrap();
    assert_eq!(built.len(), names.len());
    for it in built {
        assert!(it.result.is_ok(), "{it:?}");
    }
}

#[tokio::test]
async fn a_hostile_guest_costs_the_worker_nothing() {
    let names = BY_A_HOSTILE_GUEST.iter().map(|&name| name.to_owned());
    assert_all_blocked(Cell::Bubblewrap, names.collect()).await;
}

#[tokio::test]
#[ignore = "takes minutes in all (tests/README.md)"]
async fn nothing_that_a_hostile_guest_sends_harms_the_worker() {
    for cell in [Cell::Bubblewrap, Cell::Landlock] {
        let names = all().into_iter().map(|it| it.name);
        let names = names.filter(|name| name.starts_with("guest_sends_"));
        assert_all_blocked(cell, names.collect()).await;
    }
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

/// Carries attacks out where the control is missing. Fails with the table if one did not succeed, or fewer than `least`.
async fn assert_succeed_without(kind: Lacking, names: &[&str], least: usize) {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    let program = Path::new(env!("CARGO_BIN_EXE_attacks"));
    let table = Table::new(demonstrate(program, &[kind], &names).await.unwrap());
    assert!(table.failed().is_empty(), "\n{table}");
    let succeeded = table.counts().get(&kind).map_or(0, |count| count.0);
    assert!(succeeded >= least, "\n{table}");
}

/// Each check of the family notices what is open.
#[tokio::test]
async fn attacks_on_what_an_operator_exposes_succeed_on_what_is_open() {
    assert_succeed_without(Lacking::Operator, &[], 10).await;
}

#[tokio::test]
async fn attacks_succeed_without_the_jail_of_landlock() {
    let names = [
        "unshare_a_user_namespace",
        "write_a_file",
        "end_a_process",
        "read_the_guests_memory",
        "connect_to_loopback",
        "read_its_environment",
        "leave_what_cannot_be_removed",
    ];
    assert_succeed_without(Lacking::Landlock, &names, names.len()).await;
}

#[tokio::test]
#[ignore = "takes minutes in all (tests/README.md)"]
async fn all_attacks_succeed_without_the_jail_of_landlock() {
    assert_succeed_without(Lacking::Landlock, &[], 60).await;
}

#[tokio::test]
async fn attacks_succeed_in_bubblewrap_without_the_control() {
    let names = [
        "mount_tmpfs",
        "read_a_file",
        "end_a_process",
        "write_shared_memory",
        "read_the_guests_memory",
        "connect_to_loopback",
        "read_its_environment",
    ];
    assert_succeed_without(Lacking::Bubblewrap, &names, names.len()).await;
}

#[tokio::test]
#[ignore = "takes minutes in all (tests/README.md)"]
async fn all_attacks_succeed_in_bubblewrap_without_the_control() {
    assert_succeed_without(Lacking::Bubblewrap, &[], 70).await;
}

#[tokio::test]
async fn attacks_succeed_in_a_container_without_the_control() {
    let names = [
        "unshare_a_user_namespace",
        "become_root",
        "read_a_file",
        "read_a_neighbours_files",
        "change_system_files",
        "read_the_guests_memory",
        "connect_to_loopback",
        "read_its_environment",
    ];
    assert_succeed_without(Lacking::Docker, &names, names.len()).await;
}

#[tokio::test]
#[ignore = "takes minutes in all (tests/README.md)"]
async fn all_attacks_succeed_in_a_container_without_the_control() {
    assert_succeed_without(Lacking::Docker, &[], 85).await;
}

#[tokio::test]
async fn attacks_succeed_on_an_open_editor() {
    let names = [
        "view_a_file_outside",
        "write_outside",
        "change_through_a_link",
    ];
    assert_succeed_without(Lacking::Editor, &names, names.len()).await;
}

#[tokio::test]
#[ignore = "takes minutes in all (tests/README.md)"]
async fn all_attacks_succeed_on_an_open_editor() {
    assert_succeed_without(Lacking::Editor, &[], 9).await;
}

/// None of these needs the bait on port 80, which only root can open.
#[tokio::test]
async fn attacks_succeed_through_an_open_gateway() {
    let names = [
        "ask_the_proxy_for_metadata",
        "reach_another_port",
        "read_its_git_configuration",
        "push_to_the_default_branch",
        "push_to_a_hidden_place",
        "reach_another_repository",
        "push_a_secret",
    ];
    assert_succeed_without(Lacking::Gateway, &names, names.len()).await;
}

#[tokio::test]
#[ignore = "takes minutes in all (tests/README.md)"]
async fn all_attacks_succeed_through_an_open_gateway() {
    // Seven more by root, who can open port 80.
    assert_succeed_without(Lacking::Gateway, &[], 27).await;
}
