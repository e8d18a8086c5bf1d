//! What the chart's templates ask for by name: what to serve, whom to trust, where agents may be, settings that are there.

use k8s_openapi::ByteString;

use super::super::agent::SYSTEM;
use super::super::{Component, NOBODY};
use super::HEAD;

/// `_helpers.tpl`, but for the shipped settings.
pub(super) fn text() -> String {
    let served = Component::available().into_iter().filter_map(|one| Some((one, one.served()?)));
    let served = served.map(|(component, word)| {
        let has = format!("has \"{}\" .Values.components", component.as_str());
        format!("{{{{- if {has} }}}}{{{{- $all = append $all \"{word}\" }}}}{{{{- end }}}}\n")
    });
    let nobody = serde_json::to_value(ByteString(NOBODY.as_bytes().to_vec())).unwrap_or_default();
    let said = SHARED
        .replace("SERVED\n", &served.collect::<String>())
        .replace("NOBODY", &nobody.to_string())
        .replace("SYSTEM", SYSTEM);
    format!("{HEAD}{said}{KEPT}{EDITED}")
}

const SHARED: &str = r#"
{{/* What the controller has to serve. */}}
{{- define "portolan.serve" }}
{{- $all := list }}
SERVED
{{- join "," $all }}
{{- end }}

{{/* Whom a Provider trusts: what the verifier has written there, and until then nobody. */}}
{{- define "portolan.caBundle" }}
{{- $there := lookup "externaldata.gatekeeper.sh/v1beta1" "Provider" "" . }}
{{- dig "spec" "caBundle" NOBODY $there }}
{{- end }}

{{/* Where agents keep images, on nodes: neither the whole of them nor any of their system. */}}
{{- define "portolan.root" }}
{{- $path := .Values.agent.root }}
{{- if or (not (hasPrefix "/" $path)) (has ".." (splitList "/" $path)) (regexMatch `SYSTEM` (clean $path)) }}
{{- fail "agent.root is a folder of nodes for agents alone, such as /var/lib/portolan or /mnt/images: from their root on, without .., and none of the system's own" }}
{{- end }}
{{- $path }}
{{- end }}
"#;

/// Only where settings are looked up a cluster is asked, so that what is made of them can be tried without one.
const KEPT: &str = r#"
{{/* A file of a program's settings: it is the operator's once it is there, but for what values say. */}}
{{- define "portolan.settings" }}
{{- $name := index . 2 }}
{{- $file := index . 3 }}
{{- $shipped := include (printf "portolan.shipped.%s.%s" $name $file) (index . 0) }}
{{- $text := dig "data" $file $shipped (lookup "v1" "ConfigMap" (index . 1) $name) }}
{{- $authority := lookup "v1" "ConfigMap" (index . 1) "gatekeeper-ca" }}
{{- $stays := and $authority (ne (dig "metadata" "labels" "app.kubernetes.io/managed-by" "" $authority) "Helm") }}
{{- include "portolan.edited" (list (index . 0).Values $file $text $shipped (not (not $stays))) }}
{{- end }}
"#;

/// What values say of a file is set in it, whoever wrote it, and where it cannot be set nothing is installed: the value
/// would say one thing and the program do another. So a key counts below its own header alone, up to the next one, and
/// the rest of its line is the operator's.
///
/// A verifier looks for whom to trust where somebody is, and only there: without the file it would not start, and with one
/// that somebody else has made it must not stop looking.
const EDITED: &str = r#"
{{/* Of values, file, its text, the shipped text, and whether somebody else's authority is there: the text as values have it. Tables end at the next header; brackets in comments and lists are none. */}}
{{- define "portolan.edited" }}
{{- $values := index . 0 }}
{{- $file := index . 1 }}
{{- $text := index . 2 }}
{{- $until := `[^\n]*\n(?:[ \t\r]*(?:[^\[\s][^\n]*)?\n)*?[ \t]*` }}
{{- if eq $file "agent.toml" }}
{{- $header := `(?m)^[ \t]*\[[ \t]*report[ \t]*\.[ \t]*node[ \t]*\]` }}
{{- range $key := list "taint" "labels" }}
{{- $wanted := printf "%s = %v" $key (index $values.agent $key) }}
{{- $any := printf `(?m)^[^#\n]*\b%s["']?[ \t]*=` $key }}
{{- $text = regexReplaceAll (printf `(%s%s)%s[ \t]*=[ \t]*(?:true|false)\b` $header $until $key) $text (print "${1}" $wanted) }}
{{- if and (index $values.agent $key) (not (regexMatch $any $text)) }}
{{- $text = regexReplaceAll (print "(" $header `[ \t]*(?:#[^\n]*)?\r?$)`) $text (print "${1}\n" $wanted) }}
{{- end }}
{{- if ne (regexMatch (print $any `[ \t]*true\b`) $text) (eq (printf "%v" (index $values.agent $key)) "true") }}
{{- fail (printf "agent.toml in ConfigMap portolan-agent says another thing than agent.%s, and not in a line of its own below [report.node]: write %s there" $key $wanted) }}
{{- end }}
{{- end }}
{{- else if eq $file "verifier.toml" }}
{{- $header := `(?m)^[ \t]*\[[ \t]*tls[ \t]*\]` }}
{{- $line := trim (regexFind "client_ca = .*" (index . 3)) }}
{{- $there := print $header $until `["']?client_ca["']?[ \t]*=|^[ \t]*tls[ \t]*\.[ \t]*client_ca[ \t]*=` }}
{{- if and (not $values.verify.gatekeeperCa) (not (index . 4)) }}
{{- $path := regexQuoteMeta (trimPrefix "client_ca = " $line) }}
{{- $text = regexReplaceAll (print "(" $header $until `)client_ca[ \t]*=[ \t]*` $path `[^\n]*\n?`) $text "${1}" }}
{{- else if and $values.verify.gatekeeperCa (not (regexMatch $there $text)) }}
{{- $text = regexReplaceAll (print "(" $header `[ \t]*(?:#[^\n]*)?\r?$)`) $text (print "${1}\n" $line) }}
{{- if not (regexMatch $there $text) }}
{{- fail (printf "verifier.toml in ConfigMap portolan-verifier has no line [tls] to put below what verify.gatekeeperCa says: write it there, and below it %s" $line) }}
{{- end }}
{{- end }}
{{- end }}
{{- $text }}
{{- end }}
"#;
