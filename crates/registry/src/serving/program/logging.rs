//! Logs on stderr, as text or as one JSON object to a line.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// What to log, in the words of tracing's filters.
const VARIABLE: &str = "PORTOLAN_LOG";
/// Whoever ends by a signal says so here.
const HERE: &str = "portolan_registry::serving::program";

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// `PORTOLAN_LOG` is not a filter.
#[derive(Debug, thiserror::Error)]
#[error("{VARIABLE} is not a filter such as \"{program}=debug\"")]
pub struct FilterError {
    program: &'static str,
    #[source]
    source: tracing_subscriber::filter::ParseError,
}

/// What is logged where nobody says what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Usual {
    /// What goes wrong. No filter has to be read for it, which takes longer than a short command.
    Trouble,
    /// This, in the words of tracing's filters.
    Filter(String),
}

/// Starts logging, once for the process. Where nobody says what, it is what `program` does, by the
/// name of its library, and what goes wrong elsewhere.
pub fn start_logging(program: &'static str, format: LogFormat) -> Result<(), FilterError> {
    let usual = format!("warn,{program}=info,{HERE}=info");
    start_logging_as(program, Usual::Filter(usual), format)
}

/// The same with another answer for where nobody says what.
pub fn start_logging_as(
    program: &'static str,
    usual: Usual,
    format: LogFormat,
) -> Result<(), FilterError> {
    let wanted = std::env::var(VARIABLE).ok().filter(|value| !value.is_empty());
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(colour);
    let wanted = match (wanted, usual) {
        (Some(wanted), _) | (None, Usual::Filter(wanted)) => wanted,
        (None, Usual::Trouble) => {
            let lines = lines.with_max_level(tracing::Level::WARN);
            match format {
                LogFormat::Text => lines.init(),
                LogFormat::Json => lines.event_format(Json).init(),
            }
            tell_panics(format);
            return Ok(());
        }
    };
    let lines = lines.with_env_filter(filter(program, wanted)?);
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.event_format(Json).init(),
    }
    tell_panics(format);
    Ok(())
}

/// Where each line of the log is an object, so is what a panic says, also of one that is caught. What
/// the filter leaves out is still told, as ever.
fn tell_panics(format: LogFormat) {
    if format == LogFormat::Text {
        return;
    }
    let as_ever = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !tracing::enabled!(tracing::Level::ERROR) {
            return as_ever(panic);
        }
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let trace = Backtrace::capture();
        let trace = (trace.status() == BacktraceStatus::Captured).then(|| trace.to_string());
        let message = panic.payload_as_str().unwrap_or("it says nothing");
        tracing::error!(place, trace, "panicked: {message}");
    }));
}

fn filter(program: &'static str, wanted: String) -> Result<EnvFilter, FilterError> {
    EnvFilter::builder().parse(wanted).map_err(|source| FilterError { program, source })
}

/// One object to a line: `time`, `level`, `target`, `message`, and the event's own fields.
struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let Fields(mut line) = fields;
        let metadata = event.metadata();
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        line.insert("time".to_owned(), time.into());
        line.insert("level".to_owned(), metadata.level().as_str().to_lowercase().into());
        // An event may have a field of that name; what it says is worth more.
        line.entry("target").or_insert_with(|| metadata.target().into());
        writeln!(writer, "{}", Value::Object(line))
    }
}

struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put(field, portolan_core::causes::chain(value));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// The one line that is logged, in JSON.
    fn line_of(run: impl FnOnce()) -> Value {
        let kept = Kept::default();
        let writer = kept.clone();
        let subscriber = tracing_subscriber::fmt()
            .event_format(Json)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, run);
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_panic_is_a_line_as_any_other() {
        tell_panics(LogFormat::Json);
        let line = line_of(|| {
            std::panic::catch_unwind(|| panic!("in \"two\"\nlines")).unwrap_err();
        });
        assert_eq!(line["message"], "panicked: in \"two\"\nlines");
        assert!(line["place"].as_str().unwrap().contains("logging.rs"), "{line}");
    }

    #[test]
    fn what_is_no_filter_is_said_with_one_that_is() {
        let error = filter("portolan_agent", "portolan_agent=loud".to_owned()).unwrap_err();
        assert!(error.to_string().contains("portolan_agent=debug"), "{error}");
        filter("portolan_agent", "warn,portolan_agent=info".to_owned()).unwrap();
    }

    #[test]
    fn a_line_is_one_object_whatever_the_fields_say() {
        let line = line_of(|| {
            let id = "web-1";
            tracing::warn!(instance_id = %id, bytes = 7_u64, odd = "a\"\nb", "no \"disk\"");
        });
        assert_eq!(line["level"], "warn");
        assert_eq!(line["message"], "no \"disk\"");
        assert_eq!((&line["instance_id"], &line["bytes"]), (&"web-1".into(), &7.into()));
        assert_eq!(line["odd"], "a\"\nb");
        assert!(line["time"].as_str().unwrap().ends_with('Z'));
    }
}
