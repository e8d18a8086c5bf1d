use super::*;

/// Name, type: as in docs/agent.md. Dashboards and alerts are written against these.
const METRICS: [(&str, &str); 27] = [
    ("portolan_agent_api_request_duration_seconds", "histogram"),
    ("portolan_agent_api_requests", "counter"),
    ("portolan_agent_build", "info"),
    ("portolan_agent_cache_bytes", "gauge"),
    ("portolan_agent_cache_entries", "gauge"),
    ("portolan_agent_cache_evicted_bytes", "counter"),
    ("portolan_agent_cache_evictions", "counter"),
    ("portolan_agent_cache_pinned_rootdisks", "gauge"),
    ("portolan_agent_cache_verifications", "counter"),
    ("portolan_agent_degraded", "gauge"),
    ("portolan_agent_disk_free_bytes", "gauge"),
    ("portolan_agent_disk_full_ratio", "gauge"),
    ("portolan_agent_disk_pressure", "gauge"),
    ("portolan_agent_disk_size_bytes", "gauge"),
    ("portolan_agent_disk_used_bytes", "gauge"),
    ("portolan_agent_image_downloaded_bytes", "counter"),
    ("portolan_agent_image_pull_duration_seconds", "histogram"),
    ("portolan_agent_image_pull_errors", "counter"),
    ("portolan_agent_instance_failures", "counter"),
    ("portolan_agent_instances", "gauge"),
    ("portolan_agent_prefetch_releases", "gauge"),
    ("portolan_agent_prefetch_releases_current", "gauge"),
    ("portolan_agent_prefetches", "counter"),
    ("portolan_agent_rootdisk_build_duration_seconds", "histogram"),
    ("portolan_agent_rootdisk_build_errors", "counter"),
    ("portolan_agent_rootdisk_cache_requests", "counter"),
    ("portolan_agent_status_reports", "counter"),
];

fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

#[test]
fn the_metrics_have_exactly_these_names_and_types() {
    let metrics = Metrics::new();
    metrics.api_request("/healthz", http::StatusCode::OK, Duration::ZERO);
    let text = metrics.encode();
    let mut types: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    types.sort_unstable();
    assert_eq!(types, METRICS);
    for (name, _) in types {
        assert!(text.contains(&format!("# HELP {name} ")), "{name} says nothing of itself");
    }
}

#[test]
fn what_can_be_counted_is_there_before_it_happens() {
    let text = Metrics::new().encode();
    for series in [
        "portolan_agent_image_pull_duration_seconds_count",
        "portolan_agent_image_pull_errors_total{reason=\"digest_mismatch\"}",
        "portolan_agent_image_downloaded_bytes_total",
        "portolan_agent_rootdisk_cache_requests_total{result=\"hit\"}",
        "portolan_agent_rootdisk_cache_requests_total{result=\"miss\"}",
        "portolan_agent_rootdisk_build_duration_seconds_count",
        "portolan_agent_rootdisk_build_errors_total{reason=\"disk_full\"}",
        "portolan_agent_cache_bytes{kind=\"rootdisk\"}",
        "portolan_agent_cache_evictions_total{kind=\"blob\"}",
        "portolan_agent_disk_pressure{pool=\"cache\"}",
        "portolan_agent_disk_pressure{pool=\"volumes\"}",
        "portolan_agent_instance_failures_total{reason=\"start_failed\"}",
        "portolan_agent_degraded",
        "portolan_agent_prefetches_total{result=\"failed\"}",
        "portolan_agent_prefetch_releases{state=\"here\"}",
        "portolan_agent_prefetch_releases_current",
    ] {
        assert_eq!(value(&text, series), Some(0.0), "{series}\n{text}");
    }
}

#[test]
fn what_happens_is_counted_where_it_belongs() {
    let metrics = Metrics::new();
    metrics.pull_finished(Duration::from_millis(1500));
    metrics.pull_failed(PullFailure::Transport);
    metrics.bytes_downloaded(42);
    metrics.cache_request(CacheResult::Hit);
    metrics.build_finished(Duration::from_secs(2));
    metrics.build_failed(Reason::DiskFull);
    metrics.cache_size(CacheKind::Rootdisk, 3, 4096);
    metrics.evicted(CacheKind::Blob, 2, 100);
    metrics.verified(VerifyResult::Corrupt);
    metrics.pinned_rootdisks(7);
    metrics.instances_in("running", 5);
    metrics.instance_failed(Reason::ImagePullFailed);
    metrics.set_degraded(true);
    metrics.prefetched(PrefetchResult::Fetched);
    metrics.prefetch_releases(crate::api::PrefetchState::Here, 2);
    metrics.releases_current(true);
    metrics.pool(
        Pool::Volumes,
        PoolUse { used_bytes: 1, free_bytes: 25, size_bytes: 100, pressure: true },
    );
    let text = metrics.encode();
    for (series, expected) in [
        ("portolan_agent_image_pull_duration_seconds_sum", 1.5),
        ("portolan_agent_image_pull_errors_total{reason=\"transport\"}", 1.0),
        ("portolan_agent_image_downloaded_bytes_total", 42.0),
        ("portolan_agent_rootdisk_cache_requests_total{result=\"hit\"}", 1.0),
        ("portolan_agent_rootdisk_build_duration_seconds_sum", 2.0),
        ("portolan_agent_rootdisk_build_errors_total{reason=\"disk_full\"}", 1.0),
        ("portolan_agent_cache_entries{kind=\"rootdisk\"}", 3.0),
        ("portolan_agent_cache_bytes{kind=\"rootdisk\"}", 4096.0),
        ("portolan_agent_cache_evictions_total{kind=\"blob\"}", 2.0),
        ("portolan_agent_cache_evicted_bytes_total{kind=\"blob\"}", 100.0),
        ("portolan_agent_cache_verifications_total{result=\"corrupt\"}", 1.0),
        ("portolan_agent_cache_pinned_rootdisks", 7.0),
        ("portolan_agent_instances{phase=\"running\"}", 5.0),
        ("portolan_agent_instance_failures_total{reason=\"image_pull_failed\"}", 1.0),
        ("portolan_agent_degraded", 1.0),
        ("portolan_agent_prefetches_total{result=\"fetched\"}", 1.0),
        ("portolan_agent_prefetch_releases{state=\"here\"}", 2.0),
        ("portolan_agent_prefetch_releases_current", 1.0),
        ("portolan_agent_disk_pressure{pool=\"volumes\"}", 1.0),
        ("portolan_agent_disk_full_ratio{pool=\"volumes\"}", 0.75),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series}");
    }
}

#[test]
fn a_stranger_s_status_code_makes_no_series() {
    let metrics = Metrics::new();
    for code in 200..=599 {
        let code = http::StatusCode::from_u16(code).unwrap();
        metrics.api_request("/v1/status", code, Duration::ZERO);
    }
    let text = metrics.encode();
    let series =
        text.lines().filter(|l| l.starts_with("portolan_agent_api_requests_total")).count();
    assert!(series < 30, "{series}");
}
