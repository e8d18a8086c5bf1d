use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;

fn id(n: usize) -> InstanceId {
    format!("i{n}").parse().unwrap()
}

fn disk(n: usize) -> DiskId {
    DiskId::new(Digest::sha256(&n.to_le_bytes()), "1")
}

impl Journal for Pins {
    fn take_changes(&mut self) -> Changes {
        Pins::take_changes(self)
    }

    fn not_taken(&mut self) {
        Pins::not_taken(self);
    }
}

fn reopened(path: &std::path::Path) -> Pins {
    let (_, loaded) = Database::open(path).unwrap();
    Pins::new(loaded, u64::MAX)
}

#[test]
fn counts_follow_the_instances() {
    let mut pins = Pins::default();
    assert_eq!(pins.set(&id(1), Some(disk(1))), None);
    assert_eq!(pins.set(&id(2), Some(disk(1))), None);
    assert_eq!(pins.set(&id(2), Some(disk(1))), Some(disk(1)));
    assert_eq!(pins.count(&disk(1)), 2);
    assert_eq!(pins.set(&id(2), Some(disk(2))), Some(disk(1)));
    assert_eq!((pins.count(&disk(1)), pins.count(&disk(2))), (1, 1));
    assert_eq!(pins.set(&id(1), None), Some(disk(1)));
    assert_eq!(pins.set(&id(1), None), None);
    assert_eq!(pins.pinned().collect::<Vec<_>>(), [&disk(2)]);
    pins.reconcile([(id(3), disk(1)), (id(4), disk(1))]);
    assert_eq!((pins.count(&disk(1)), pins.count(&disk(2)), pins.len()), (2, 0, 2));
}

#[test]
fn pins_and_times_survive_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.redb");
    let (database, loaded) = Database::open(&path).unwrap();
    assert_eq!(loaded, Loaded::default());
    let pins = Arc::new(Mutex::new(Pins::new(loaded, 1)));
    let writer = Writer::start(database, Arc::clone(&pins));
    {
        let mut pins = pins.lock().unwrap();
        pins.set(&id(1), Some(disk(1)));
        pins.set(&id(2), Some(disk(2)));
        pins.touch("k", 5000);
        pins.set_origin(&disk(2).resolved_digest, Some("r.example/a"));
    }
    assert!(writer.flush());
    pins.lock().unwrap().set(&id(1), None);
    drop(writer);
    let again = reopened(&path);
    assert_eq!((again.of(&id(1)), again.of(&id(2))), (None, Some(&disk(2))));
    assert_eq!((again.count(&disk(1)), again.count(&disk(2))), (0, 1));
    assert_eq!(again.last_access("k"), Some(5000));
    assert_eq!(again.origin(&disk(2).resolved_digest), Some("r.example/a"));
}

#[test]
fn pins_reach_the_database_soon_without_being_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.redb");
    let (database, loaded) = Database::open(&path).unwrap();
    let pins = Arc::new(Mutex::new(Pins::new(loaded, 1)));
    let writer = Writer::start(database, Arc::clone(&pins));
    assert!(writer.flush());
    pins.lock().unwrap().set(&id(1), Some(disk(1)));
    assert!(pins.lock().unwrap().is_urgent());
    writer.soon();
    let start = Instant::now();
    while pins.lock().unwrap().is_urgent() {
        assert!(start.elapsed() < Duration::from_secs(20), "nobody took it");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn times_of_use_only_grow_even_when_the_clock_goes_back() {
    let mut pins = Pins::default();
    pins.touch("a", 10_000);
    pins.touch("b", 4_000);
    pins.touch("c", 4_000);
    let time = |pins: &Pins, name: &str| pins.last_access(name).unwrap();
    assert!(time(&pins, "a") < time(&pins, "b") && time(&pins, "b") < time(&pins, "c"));
    assert_eq!(pins.now(3_000), time(&pins, "c"));
    pins.touch("a", 20_000);
    assert_eq!(time(&pins, "a"), 20_000);
}

#[test]
fn times_from_the_future_keep_their_order_and_do_not_stay_young() {
    let access = [("old", 50), ("soon", 90_000), ("later", 95_000)];
    let access = access.map(|(name, time)| (name.to_owned(), time)).into();
    let mut pins = Pins::new(Loaded { access, ..Loaded::default() }, 1_000);
    let time = |pins: &Pins, name: &str| pins.last_access(name).unwrap();
    assert_eq!(time(&pins, "old"), 50);
    assert!(time(&pins, "soon") < time(&pins, "later") && time(&pins, "later") <= 1_000);
    pins.touch("new", 1_000);
    assert!(time(&pins, "new") > time(&pins, "later"));
    pins.remember("new", 3);
    pins.remember("file", 70);
    assert_eq!((time(&pins, "file"), time(&pins, "new") >= 1_000), (70, true));
    pins.retain(|name| name == "file");
    assert_eq!(pins.last_access("new"), None);
}

#[test]
fn a_damaged_database_is_moved_aside_and_a_new_one_works() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.redb");
    let fill = |path: &std::path::Path| {
        let (mut database, _) = Database::open(path).unwrap();
        let mut pins = Pins::default();
        (0..50).for_each(|n| drop(pins.set(&id(n), Some(disk(n % 7)))));
        database.write(&pins.take_changes()).unwrap();
    };
    let ruin: [fn(&std::path::Path); 7] = [
        |path| std::fs::write(path, b"this is no database at all").unwrap(),
        |path| {
            let mut bytes = std::fs::read(path).unwrap();
            bytes.iter_mut().skip(4096).for_each(|b| *b ^= 0x5a);
            std::fs::write(path, bytes).unwrap();
        },
        |path| std::fs::File::options().write(true).open(path).unwrap().set_len(5000).unwrap(),
        |path| {
            std::fs::remove_file(path).unwrap();
            std::fs::create_dir(path).unwrap();
        },
        |path| {
            std::fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink("/dev/zero", path).unwrap();
        },
        |path| {
            std::fs::remove_file(path).unwrap();
            let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
            rustix::fs::mkfifoat(rustix::fs::CWD, path, mode).unwrap();
        },
        // Whole, and of somebody else: a table of ours with other columns.
        |path| {
            std::fs::remove_file(path).unwrap();
            let theirs = redb::Database::create(path).unwrap();
            let write = theirs.begin_write().unwrap();
            let table = redb::TableDefinition::<u64, u64>::new("instances");
            write.open_table(table).unwrap().insert(1, 1).unwrap();
            write.commit().unwrap();
        },
    ];
    for (n, ruin) in ruin.iter().enumerate() {
        fill(&path);
        ruin(&path);
        let (mut database, loaded) = Database::open(&path).unwrap();
        assert_eq!(loaded, Loaded::default(), "case {n}");
        let mut pins = Pins::new(loaded, 1);
        pins.reconcile([(id(1), disk(1))]);
        database.write(&pins.take_changes()).unwrap();
        drop(database);
        assert_eq!(reopened(&path).of(&id(1)), Some(&disk(1)));
    }
    let aside = std::fs::read_dir(dir.path()).unwrap().count();
    assert!(aside > ruin.len(), "what was damaged is kept for those who want to look");
}

#[test]
fn ten_thousand_instances_and_a_thousand_disks_are_quick() {
    let mut pins = Pins::default();
    let live = (0..10_000).map(|n| (id(n), disk(n % 1000)));
    let mut times = Vec::new();
    let mut timed = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        times.push(start.elapsed());
    };
    pins.reconcile(live);
    for n in 0..1000 {
        timed(&mut || drop(pins.set(&id(n), Some(disk(n + 1)))));
        timed(&mut || pins.touch(&disk(n).key(), 1));
        timed(&mut || drop(pins.set(&id(n), None)));
    }
    // Nine of ten, since a busy machine may put any one of them to sleep.
    times.sort_unstable();
    let most = times[times.len() * 9 / 10];
    assert!(most < Duration::from_millis(10), "{most:?}");
}
