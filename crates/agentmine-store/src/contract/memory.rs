//! The memory of projects.

use agentmine_domain::memory::limits::RECORDS;

use super::*;

facts! {
    a_record_comes_back_as_it_was_added,
    the_memory_of_one_project_is_not_that_of_another,
    a_record_is_added_once,
    of_two_changes_to_one_version_the_second_is_refused,
    a_write_that_is_repeated_finds_itself,
    memory_is_listed_by_status_category_and_tag_in_pages,
    a_full_memory_takes_no_more_records,
}

fn shop() -> ProjectName {
    ProjectName::of_forge("github.com", "acme/shop")
}

fn entry(id: &str) -> MemoryEntry {
    MemoryEntry {
        id: id.parse().unwrap(),
        category: "tooling".into(),
        title: format!("Title of {id}"),
        summary: String::new(),
        content: String::new(),
        status: MemoryStatus::Active,
        tags: Vec::new(),
        source: MemorySource::Human,
        confidence: Confidence::High,
        expires_at: None,
    }
}

async fn add(world: &World, project: &ProjectName, entry: &MemoryEntry) -> MemoryAdded {
    let adding = world.store.add_memory(project, entry, Uuid::new_v4());
    adding.await.unwrap()
}

async fn added(world: &World, entry: &MemoryEntry) -> MemoryRecord {
    match add(world, &shop(), entry).await {
        MemoryAdded::Added(record) => record,
        other => panic!("{other:?}"),
    }
}

async fn ids(world: &World, filter: MemoryFilter) -> Vec<String> {
    let found = world.store.memory(&shop(), &filter).await.unwrap();
    found
        .iter()
        .map(|record| record.entry.id.to_string())
        .collect()
}

async fn a_record_comes_back_as_it_was_added(world: World) {
    let full = MemoryEntry {
        title: "日本語 \"quoted\" % _ \\".into(),
        summary: "two\nlines".into(),
        content: "# Text\r\n\n```\n\t'x'\n```\n\n".into(),
        status: MemoryStatus::Draft,
        tags: vec!["a \"b\"".into(), "c%d".into()],
        source: MemorySource::Session,
        confidence: Confidence::Low,
        expires_at: Some("2031-02-03T04:05:06.789Z".parse().unwrap()),
        ..entry("full")
    };
    let record = added(&world, &full).await;
    assert_eq!((&record.entry, record.version), (&full, 1));
    assert_eq!(record.created_at, record.updated_at);
    let id = full.id.clone();
    let found = world.store.memory_record(&shop(), &id).await.unwrap();
    assert_eq!(found, Some(record));
    let other = "other".parse().unwrap();
    assert_eq!(
        world.store.memory_record(&shop(), &other).await.unwrap(),
        None
    );
}

async fn the_memory_of_one_project_is_not_that_of_another(world: World) {
    added(&world, &entry("linter")).await;
    let blog = ProjectName::of_forge("github.com", "acme/blog");
    let all = MemoryFilter::default();
    assert_eq!(world.store.memory(&blog, &all).await.unwrap(), []);
    let same_id = add(&world, &blog, &entry("linter")).await;
    assert!(matches!(same_id, MemoryAdded::Added(_)));
    assert_eq!(world.store.memory(&shop(), &all).await.unwrap().len(), 1);
}

async fn a_record_is_added_once(world: World) {
    let first = added(&world, &entry("linter")).await;
    let second = MemoryEntry {
        title: "Another".into(),
        ..entry("linter")
    };
    let outcome = add(&world, &shop(), &second).await;
    assert_eq!(outcome, MemoryAdded::Exists(first));
}

async fn of_two_changes_to_one_version_the_second_is_refused(world: World) {
    let store = &world.store;
    added(&world, &entry("linter")).await;
    let change = |title: &str| MemoryEntry {
        title: title.into(),
        status: MemoryStatus::Archived,
        tags: vec!["x".into()],
        ..entry("linter")
    };
    let (a, b) = (change("A"), change("B"));
    let project = shop();
    let (first, second) = tokio::join!(
        store.update_memory(&project, &a, 1, Uuid::new_v4()),
        store.update_memory(&project, &b, 1, Uuid::new_v4()),
    );
    let (mut updated, mut refused) = (Vec::new(), Vec::new());
    for outcome in [first.unwrap(), second.unwrap()] {
        match outcome {
            MemoryUpdated::Updated(record) => updated.push(record),
            MemoryUpdated::Conflict(record) => refused.push(record),
            MemoryUpdated::Missing => panic!("it is there"),
        }
    }
    assert_eq!(updated.len(), 1);
    assert_eq!(updated, refused, "the conflict shows the record as it is");
    assert_eq!(updated[0].version, 2);
    assert!([a, b].contains(&updated[0].entry));
    let unknown = entry("x");
    let missing = store.update_memory(&project, &unknown, 1, Uuid::new_v4());
    assert_eq!(missing.await.unwrap(), MemoryUpdated::Missing);
}

async fn a_write_that_is_repeated_finds_itself(world: World) {
    let (store, project) = (&world.store, shop());
    let nonce = Uuid::new_v4();
    for _ in 0..2 {
        let outcome = store.add_memory(&project, &entry("linter"), nonce).await;
        assert!(matches!(outcome.unwrap(), MemoryAdded::Added(record) if record.version == 1));
    }
    let nonce = Uuid::new_v4();
    for _ in 0..2 {
        let outcome = store
            .update_memory(&project, &entry("linter"), 1, nonce)
            .await;
        assert!(matches!(outcome.unwrap(), MemoryUpdated::Updated(record) if record.version == 2));
    }
}

async fn memory_is_listed_by_status_category_and_tag_in_pages(world: World) {
    for (id, category, status, tags) in [
        ("a", "tooling", MemoryStatus::Active, &["x", "y%z"][..]),
        ("b", "design", MemoryStatus::Draft, &["x"]),
        ("c", "tooling", MemoryStatus::Archived, &["yyz"]),
    ] {
        let entry = MemoryEntry {
            category: category.into(),
            status,
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            ..entry(id)
        };
        added(&world, &entry).await;
    }
    let all = MemoryFilter::default;
    assert_eq!(ids(&world, all()).await, ["a", "b", "c"]);
    let draft = MemoryFilter {
        status: Some(MemoryStatus::Draft),
        ..all()
    };
    assert_eq!(ids(&world, draft).await, ["b"]);
    let tooling = MemoryFilter {
        category: Some("tooling".into()),
        ..all()
    };
    assert_eq!(ids(&world, tooling).await, ["a", "c"]);
    let tagged = |tag: &str| MemoryFilter {
        tag: Some(tag.into()),
        ..all()
    };
    assert_eq!(ids(&world, tagged("x")).await, ["a", "b"]);
    assert_eq!(ids(&world, tagged("y%z")).await, ["a"]);
    assert_eq!(ids(&world, tagged("y")).await, [""; 0]);
    let page = |after: Option<&str>| MemoryFilter {
        after: after.map(|id| id.parse().unwrap()),
        limit: 2,
        ..all()
    };
    assert_eq!(ids(&world, page(None)).await, ["a", "b"]);
    assert_eq!(ids(&world, page(Some("b"))).await, ["c"]);
}

async fn a_full_memory_takes_no_more_records(world: World) {
    for number in 1..=RECORDS {
        added(&world, &entry(&format!("r{number}"))).await;
    }
    let more = add(&world, &shop(), &entry("more")).await;
    assert_eq!(more, MemoryAdded::Full);
    let known = add(&world, &shop(), &entry("r1")).await;
    assert!(matches!(known, MemoryAdded::Exists(_)));
    let blog = ProjectName::of_forge("github.com", "acme/blog");
    let other = add(&world, &blog, &entry("r1")).await;
    assert!(matches!(other, MemoryAdded::Added(_)));
}
