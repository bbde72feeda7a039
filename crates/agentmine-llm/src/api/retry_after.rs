//! When a server that refuses can be asked again, from its headers or its words.
//!
//! Servers and proxies have many ways to say it; each one is read, and what cannot be read is as if it
//! were absent. A proxy that puts a prefix before its provider's headers is understood too.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use reqwest::header::HeaderMap;

/// What LiteLLM's proxy puts before the names of its provider's headers.
const FORWARDED: &str = "llm_provider-";
/// Milliseconds (OpenAI, Azure).
const MILLISECONDS: [&str; 2] = ["retry-after-ms", "x-ms-retry-after-ms"];
/// Seconds or a date (RFC 9110 §10.2.3), or a duration such as `6m0s`.
const RETRY_AFTER: &str = "retry-after";
/// The ends of rate limits, each with the header that says how much of the limit is left. OpenAI and
/// Groq, Anthropic, OpenRouter, the IETF draft, Mistral, GitHub Models.
const RESETS: [(&str, &str); 11] = [
    (
        "x-ratelimit-reset-requests",
        "x-ratelimit-remaining-requests",
    ),
    ("x-ratelimit-reset-tokens", "x-ratelimit-remaining-tokens"),
    (
        "anthropic-ratelimit-requests-reset",
        "anthropic-ratelimit-requests-remaining",
    ),
    (
        "anthropic-ratelimit-tokens-reset",
        "anthropic-ratelimit-tokens-remaining",
    ),
    (
        "anthropic-ratelimit-input-tokens-reset",
        "anthropic-ratelimit-input-tokens-remaining",
    ),
    (
        "anthropic-ratelimit-output-tokens-reset",
        "anthropic-ratelimit-output-tokens-remaining",
    ),
    ("x-ratelimit-reset", "x-ratelimit-remaining"),
    ("x-rate-limit-reset", "x-rate-limit-remaining"),
    ("ratelimit-reset", "ratelimit-remaining"),
    ("ratelimitbysize-reset", "ratelimitbysize-remaining"),
    ("x-ratelimit-timeremaining", "x-ratelimit-remaining"),
];
/// What comes before a duration in the text of a refusal (OpenAI, Google, Anthropic, Azure).
const WORDS: [&str; 5] = [
    "\"retrydelay\":",
    "try again in ",
    "retry in ",
    "retry after ",
    "try again after ",
];

/// The wait that a server asks for.
pub(crate) fn retry_after(
    status: u16,
    headers: &HeaderMap,
    body: &str,
    now: SystemTime,
) -> Option<Duration> {
    let milliseconds = MILLISECONDS.iter().find_map(|name| {
        let number: f64 = header(headers, name)?.parse().ok()?;
        Duration::try_from_secs_f64(number / 1e3).ok()
    });
    milliseconds
        .or_else(|| wait(header(headers, RETRY_AFTER)?, now))
        .or_else(|| (status == 429).then(|| reset(headers, now))?)
        .or_else(|| matches!(status, 429 | 503).then(|| in_words(body))?)
}

/// The trimmed value of a header, the server's own before a forwarded one.
fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let value = headers
        .get(name)
        .or_else(|| headers.get(format!("{FORWARDED}{name}")))?;
    value.to_str().ok().map(str::trim)
}

/// The latest end of the limits that are exhausted.
fn reset(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let exhausted = |remaining: &str| {
        header(headers, remaining)
            .and_then(|left| left.parse::<f64>().ok())
            .is_none_or(|left| left <= 0.0)
    };
    RESETS
        .iter()
        .filter(|(_, remaining)| exhausted(remaining))
        .filter_map(|(reset, _)| wait(header(headers, reset)?, now))
        .max()
}

fn in_words(body: &str) -> Option<Duration> {
    let body = body.to_lowercase();
    WORDS.iter().find_map(|words| {
        let (_, rest) = body.split_once(words)?;
        duration(rest.trim_start_matches([' ', '"']))
    })
}

/// A wait in seconds, as a duration, until a date, or until a Unix time in seconds or milliseconds.
fn wait(text: &str, now: SystemTime) -> Option<Duration> {
    let until = |moment: SystemTime| moment.duration_since(now).unwrap_or_default();
    if let Ok(number) = text.parse::<f64>() {
        let wait = Duration::try_from_secs_f64(number).ok()?;
        let unix = match number {
            5e8..1e11 => wait,
            1e11..1e14 => wait / 1000,
            _ => return Some(wait),
        };
        return Some(until(SystemTime::UNIX_EPOCH.checked_add(unix)?));
    }
    if let Ok(date) = httpdate::parse_http_date(text) {
        return Some(until(date));
    }
    if let Ok(date) = text.parse::<DateTime<Utc>>() {
        return Some(until(date.into()));
    }
    duration(text)
}

/// A duration such as `6m0s`, `20ms`, `1.5 seconds` or `30`, at the start of a text.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds = None;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, after) = rest.split_at(digits.unwrap_or(rest.len()));
        let Ok(number) = number.trim_end_matches('.').parse::<f64>() else {
            break;
        };
        let after = after.trim_start();
        let letters = after.find(|c: char| !c.is_ascii_alphabetic());
        let (unit, after) = after.split_at(letters.unwrap_or(after.len()));
        let Some(unit) = unit_seconds(unit) else {
            // A bare number is in seconds.
            seconds = seconds.or(Some(number));
            break;
        };
        seconds = Some(seconds.unwrap_or_default() + number * unit);
        rest = after.trim_start();
    }
    Duration::try_from_secs_f64(seconds?).ok()
}

fn unit_seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "ms" | "millisecond" | "milliseconds" => 1e-3,
        "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "h" | "hour" | "hours" => 3600.0,
        "d" | "day" | "days" => 86_400.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: u16, lines: &[(&'static str, &str)], body: &str) -> Option<u128> {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.insert(*name, value.parse().unwrap());
        }
        retry_after(status, &headers, body, now).map(|wait| wait.as_millis())
    }

    #[test]
    fn a_retry_after_header_is_read_in_all_its_variants() {
        for (name, value, ms) in [
            ("retry-after", "3", 3_000),
            ("retry-after", "0.5", 500),
            ("retry-after", "1m30s", 90_000),
            ("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT", 30_000),
            ("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT", 0),
            ("retry-after", "1994-11-06T08:49:57Z", 20_000),
            ("retry-after-ms", "250", 250),
            ("x-ms-retry-after-ms", "1500", 1_500),
            ("llm_provider-retry-after", "7", 7_000),
            ("llm_provider-retry-after-ms", "70", 70),
        ] {
            let seen = read(503, &[(name, value)], "");
            assert_eq!(seen, Some(ms), "{name}: {value}");
        }
        for nonsense in ["soon", "-1", "NaN", "1e300", ""] {
            let seen = read(503, &[("retry-after", nonsense)], "");
            assert_eq!(seen, None, "{nonsense}");
        }
        let own_first = [("llm_provider-retry-after", "9"), ("retry-after", "2")];
        assert_eq!(read(429, &own_first, ""), Some(2_000));
    }

    #[test]
    fn the_reset_of_an_exhausted_limit_is_read_in_all_its_variants() {
        for (name, value, ms) in [
            ("x-ratelimit-reset-requests", "6m0s", 360_000),
            ("x-ratelimit-reset-tokens", "20ms", 20),
            ("x-ratelimit-reset-requests", "2m59.56s", 179_560),
            ("llm_provider-x-ratelimit-reset-tokens", "1s", 1_000),
            ("x-ratelimit-reset", "784111817", 40_000),
            ("x-ratelimit-reset", "784111817000", 40_000),
            ("ratelimit-reset", "50", 50_000),
            ("ratelimitbysize-reset", "41", 41_000),
            (
                "anthropic-ratelimit-tokens-reset",
                "1994-11-06T08:50:00Z",
                23_000,
            ),
        ] {
            assert_eq!(read(429, &[(name, value)], ""), Some(ms), "{name}: {value}");
            assert_eq!(read(503, &[(name, value)], ""), None, "{name}: {value}");
        }
        let both = [
            ("x-ratelimit-reset-requests", "1h"),
            ("x-ratelimit-remaining-requests", "12"),
            ("x-ratelimit-reset-tokens", "8s"),
            ("x-ratelimit-remaining-tokens", "0"),
        ];
        assert_eq!(read(429, &both, ""), Some(8_000));
    }

    #[test]
    fn the_words_of_a_refusal_are_read_where_no_header_says_it() {
        for (body, ms) in [
            (
                "Rate limit reached. Please try again in 6m0s. Visit x",
                360_000,
            ),
            ("Limit 30000, Requested 1. Please try again in 20ms.", 20),
            (r#"{"details":[{"retryDelay":"34s"}]}"#, 34_000),
            ("Please retry in 34.5s.", 34_500),
            ("Please retry after 30 seconds.", 30_000),
            ("try again in 1 minute and", 60_000),
        ] {
            assert_eq!(read(429, &[], body), Some(ms), "{body}");
            assert_eq!(read(500, &[], body), None, "{body}");
        }
        assert_eq!(read(429, &[], "try again in a while"), None);
    }
}
