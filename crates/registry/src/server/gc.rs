//! Upkeep: garbage of every repository, uploads that nobody goes on with.

use std::path::Path;
use std::time::Duration;

use portolan_core::Repository;
use portolan_core::causes::chain;

use super::App;
use super::config::GarbageSchedule;
use super::store::Store;
use crate::layout::{Collected, GarbageOptions, LayoutError};

/// How often abandoned uploads are looked for.
const EXPIRY_CHECK: Duration = Duration::from_secs(600);

/// What a collection did to one repository.
#[derive(Debug)]
pub struct RepositoryGarbage {
    /// Which repository.
    pub repository: Repository,
    /// What went, or why nothing could.
    pub outcome: Result<Collected, LayoutError>,
}

/// Collects garbage in every repository below `root`, whether or not a server runs there: each
/// repository's lock keeps the two apart. One that cannot be collected does not stop the others.
pub fn collect_garbage(
    root: &Path,
    options: &GarbageOptions,
) -> Result<Vec<RepositoryGarbage>, LayoutError> {
    collect(&Store::new(root.to_path_buf()), options)
}

fn collect(store: &Store, options: &GarbageOptions) -> Result<Vec<RepositoryGarbage>, LayoutError> {
    let mut all = Vec::new();
    for repository in store.repositories()? {
        let outcome = match store.find(&repository) {
            Ok(Some(layout)) => layout.collect_garbage(options),
            Ok(None) => continue,
            Err(error) => Err(error),
        };
        all.push(RepositoryGarbage { repository, outcome });
    }
    Ok(all)
}

/// Runs until it is aborted.
pub(super) async fn upkeep(app: App, schedule: Option<GarbageSchedule>) {
    let mut expiry = tokio::time::interval(EXPIRY_CHECK);
    let every = schedule.as_ref().map_or(Duration::MAX, |schedule| schedule.every);
    // The first tick of an interval is at once; garbage can wait.
    let first = tokio::time::Instant::now().checked_add(every);
    let mut garbage = first.map(|first| tokio::time::interval_at(first, every.max(MIN_PERIOD)));
    loop {
        let collecting = async {
            match &mut garbage {
                Some(garbage) => {
                    garbage.tick().await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = expiry.tick() => expire_uploads(&app).await,
            () = collecting => {
                if let Some(schedule) = &schedule {
                    collect_all(&app, schedule.options).await;
                }
            }
        }
    }
}

/// An interval of zero is a loop without pause.
const MIN_PERIOD: Duration = Duration::from_secs(1);

async fn expire_uploads(app: &App) {
    let (store, uploads) = (app.store(), app.uploads());
    let expiry = app.limits().upload_expiry;
    let job = tokio::task::spawn_blocking(move || {
        let names = store.repositories().unwrap_or_default();
        for layout in names.iter().filter_map(|name| store.find(name).ok().flatten()) {
            match uploads.expire(&layout, expiry) {
                Ok(0) => {}
                Ok(removed) => {
                    tracing::info!(layout = %layout.dir().display(), removed, "uploads expired");
                }
                Err(error) => tracing::warn!(%error, "cannot look for expired uploads"),
            }
        }
    });
    let _ = job.await;
}

async fn collect_all(app: &App, options: GarbageOptions) {
    let store = app.store();
    let job = tokio::task::spawn_blocking(move || collect(&store, &options));
    let Ok(result) = job.await else { return };
    for RepositoryGarbage { repository, outcome } in result.unwrap_or_default() {
        match outcome {
            Ok(collected) => tracing::info!(
                %repository,
                removed = collected.removed.len(),
                bytes = collected.bytes(),
                "garbage collected"
            ),
            Err(error) => {
                tracing::error!(%repository, error = %chain(&error), "garbage not collected");
            }
        }
    }
}
