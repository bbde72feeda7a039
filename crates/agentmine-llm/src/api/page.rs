//! Web pages where a model API was expected: a wrong address, a login, a gateway's error.

/// Characters of a title that are shown.
const TITLE: usize = 100;

/// Describes a text that is a web page: `a web page titled "…"`.
pub(crate) fn described(text: &str) -> Option<String> {
    let start: String = text.trim_start().chars().take(1_000).collect();
    let start = start.to_ascii_lowercase();
    let begins = |tag| start.starts_with(tag);
    let comment = begins("<!--") && start.contains("<html");
    if !(begins("<!doctype html")
        || begins("<html")
        || begins("<head")
        || begins("<body")
        || comment)
    {
        return None;
    }
    Some(match title(text) {
        Some(title) => format!("a web page titled {title:?}"),
        None => "a web page".to_owned(),
    })
}

fn title(page: &str) -> Option<String> {
    let lower = page.to_ascii_lowercase();
    let begin = lower.find("<title")?;
    let begin = begin + lower[begin..].find('>')? + 1;
    let end = begin + lower[begin..].find('<')?;
    let words: Vec<&str> = page[begin..end].split_whitespace().collect();
    let title: String = words.join(" ").chars().take(TITLE).collect();
    (!title.is_empty()).then_some(title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_described_by_its_title() {
        for (text, expected) in [
            (
                "\n<!DOCTYPE html>\n<html><head><TITLE>\n Open  WebUI</title>",
                "a web page titled \"Open WebUI\"",
            ),
            ("<html>login</html>", "a web page"),
            (
                "<!-- x --><html lang=en><title>é</title>",
                "a web page titled \"é\"",
            ),
        ] {
            assert_eq!(described(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "{\"error\": \"<html>\"}", "<think>", "data: <html>"] {
            assert_eq!(described(text), None, "{text}");
        }
    }
}
