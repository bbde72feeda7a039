//! Spans as the JSON of OTLP: `ExportTraceServiceRequest`. Ids are hexadecimal, 64-bit numbers are texts.

use serde_json::{Value, json};

use super::record::{Attribute, CONVENTIONS, Record, SpanKind};

/// A request with these spans of the service.
pub(super) fn request(service: &str, spans: &[Box<Record>]) -> Value {
    let resource = [
        attribute("service.name", &format!("agentmine-{service}").into()),
        attribute("service.version", &env!("CARGO_PKG_VERSION").into()),
    ];
    let spans: Vec<Value> = spans.iter().map(|span| encoded(span)).collect();
    json!({
        "resourceSpans": [{
            "resource": { "attributes": resource },
            "scopeSpans": [{
                "scope": { "name": "agentmine", "version": env!("CARGO_PKG_VERSION") },
                "spans": spans,
                "schemaUrl": CONVENTIONS,
            }],
            "schemaUrl": CONVENTIONS,
        }]
    })
}

fn encoded(record: &Record) -> Value {
    let Record {
        own,
        parent,
        name,
        kind,
        begun,
        ended,
        attributes,
        error,
    } = record;
    let failed = error
        .iter()
        .map(|kind| attribute("error.type", &kind.as_str().into()));
    let attributes = attributes
        .iter()
        .map(|(name, value)| attribute(name, value));
    let attributes: Vec<Value> = attributes.chain(failed).collect();
    let mut span = json!({
        "traceId": own.trace_id(),
        "spanId": own.span_id(),
        "name": name,
        // The numbers of the protocol.
        "kind": match kind {
            SpanKind::Internal => 1,
            SpanKind::Client => 3,
        },
        "startTimeUnixNano": begun.to_string(),
        "endTimeUnixNano": ended.to_string(),
        "attributes": attributes,
        "status": match error {
            None => json!({}),
            Some(kind) => json!({ "code": 2, "message": kind }),
        },
    });
    if let Some(parent) = parent {
        span["parentSpanId"] = format!("{parent:016x}").into();
    }
    span
}

fn attribute(name: &str, value: &Attribute) -> Value {
    let value = match value {
        Attribute::Text(text) => json!({ "stringValue": text }),
        Attribute::Int(number) => json!({ "intValue": number.to_string() }),
        Attribute::Bool(value) => json!({ "boolValue": value }),
    };
    json!({ "key": name, "value": value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::SpanContext;

    #[test]
    fn a_span_is_encoded_as_the_protocol_wants_it() {
        let record = Record {
            own: SpanContext::of_session(7, 1),
            parent: Some(255),
            name: "chat m".into(),
            kind: SpanKind::Client,
            begun: 1_700_000_000_000_000_000,
            ended: 1_700_000_001_000_000_000,
            attributes: vec![("gen_ai.usage.input_tokens", 12_u64.into())],
            error: Some("timeout".into()),
        };
        let request = request("consumer", &[Box::new(record)]);
        let of_service = &request["resourceSpans"][0];
        let name = &of_service["resource"]["attributes"][0]["value"]["stringValue"];
        assert_eq!(name, "agentmine-consumer");
        let span = &of_service["scopeSpans"][0]["spans"][0];
        assert_eq!(span["traceId"], "00000000000000000000000000000007");
        assert_eq!(span["parentSpanId"], "00000000000000ff");
        assert_eq!(span["startTimeUnixNano"], "1700000000000000000");
        assert_eq!(span["kind"], 3);
        assert_eq!(span["status"]["code"], 2);
        assert_eq!(span["attributes"][0]["value"]["intValue"], "12");
        assert_eq!(span["attributes"][1]["key"], "error.type");
    }
}
