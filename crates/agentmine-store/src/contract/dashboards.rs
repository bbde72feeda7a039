//! The dashboard issues of repositories.

use super::*;

facts! {
    a_dashboard_has_one_holder_at_a_time,
    a_text_begins_apart_from_the_one_before,
}

fn repository() -> RepositoryRef {
    let item = issue(1, "e1").item;
    RepositoryRef {
        tracker: item.tracker,
        host: item.host,
        repo_id: item.repo_id,
        repo_path: item.repo_path,
    }
}

async fn a_dashboard_has_one_holder_at_a_time(world: World) {
    let (store, repository) = (&world.store, repository());
    let holders = [Uuid::from_u128(1), Uuid::from_u128(2)];
    let claim = async |holder, time| store.claim_dashboard(&repository, holder, time).await;
    let first = claim(holders[0], MINUTE).await.unwrap().unwrap();
    assert_eq!((first.number, first.body.as_str()), (None, ""));
    assert_eq!(claim(holders[1], MINUTE).await.unwrap(), None);
    // What another one writes changes nothing.
    store
        .found_dashboard(&repository, holders[1], 9)
        .await
        .unwrap();
    let begun = store
        .begin_dashboard_text(&repository, holders[1], NONE)
        .await;
    assert_eq!(begun.unwrap(), None);
    store
        .release_dashboard(&repository, holders[0])
        .await
        .unwrap();
    let second = claim(holders[1], NONE).await.unwrap().unwrap();
    assert_eq!(second, first);
    // Its time is over.
    let begun = store
        .begin_dashboard_text(&repository, holders[1], NONE)
        .await;
    assert_eq!(begun.unwrap(), None);
    assert!(claim(holders[0], MINUTE).await.unwrap().is_some());
    assert_eq!(store.dashboards().await.unwrap(), [first]);
}

async fn a_text_begins_apart_from_the_one_before(world: World) {
    let (store, repository) = (&world.store, repository());
    let holder = Uuid::from_u128(1);
    let claim = store.claim_dashboard(&repository, holder, MINUTE);
    claim.await.unwrap().unwrap();
    let begin = async |apart| {
        store
            .begin_dashboard_text(&repository, holder, apart)
            .await
            .unwrap()
    };
    assert_eq!(begin(MINUTE).await, Some(1));
    assert_eq!(begin(MINUTE).await, None);
    assert_eq!(begin(NONE).await, Some(2));
    let at = chrono::DateTime::UNIX_EPOCH + chrono::TimeDelta::milliseconds(1500);
    let shown = ShownDashboard {
        number: 7,
        at,
        body: "all",
        notice: "nothing",
    };
    store
        .dashboard_shows(&repository, holder, &shown)
        .await
        .unwrap();
    store
        .note_on_dashboard(&repository, holder, "something")
        .await
        .unwrap();
    let [known] = <[Dashboard; 1]>::try_from(store.dashboards().await.unwrap()).unwrap();
    let expected = Dashboard {
        repository: repository.clone(),
        number: Some(7),
        revision: 2,
        shown_at: Some(at),
        body: "all".into(),
        notice: "something".into(),
    };
    assert_eq!(known, expected);
    assert!(known.is(&issue(7, "e1").item) && !known.is(&issue(8, "e1").item));
}
