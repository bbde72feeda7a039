//! Sizes of the pages of a list, and smaller ones, for when a page with long texts exceeds the size limit of a reply.

use url::Url;

/// Rows of a page whose address names no size, as far as limits are concerned: none has more.
const LARGEST: u64 = 100;

/// How many rows the page at an address may have.
pub(super) fn page_size(url: &Url) -> u64 {
    number(url, "per_page").unwrap_or(LARGEST)
}

/// How many rows of the list are before the page at an address, if that has a number.
pub(super) fn rows_before(url: &Url) -> Option<u64> {
    let before = number(url, "page")?.saturating_sub(1);
    Some(before.saturating_mul(page_size(url)))
}

/// The address of a page that begins where this one does, with fewer entries; the pages after it have as few. `None` if the
/// address has no page size, or a size of one.
pub(super) fn smaller_page(url: &Url) -> Option<Url> {
    let size = number(url, "per_page").filter(|size| *size > 1)?;
    // It has to divide the size, or pages with a number would begin elsewhere.
    let smaller = match size.is_multiple_of(10) {
        true => size / 10,
        false => 1,
    };
    let page = number(url, "page").map(|page| {
        let before = page.saturating_sub(1).saturating_mul(size / smaller);
        before.saturating_add(1)
    });
    let pairs = url.query_pairs().into_owned();
    let pairs: Vec<(String, String)> = pairs
        .map(|(key, value)| {
            let value = match (key.as_str(), page) {
                ("per_page", _) => smaller.to_string(),
                ("page", Some(page)) => page.to_string(),
                _ => value,
            };
            (key, value)
        })
        .collect();
    let mut found = url.clone();
    found.query_pairs_mut().clear().extend_pairs(pairs);
    Some(found)
}

/// The number that an address has for `key`.
fn number(url: &Url, key: &str) -> Option<u64> {
    let mut pairs = url.query_pairs();
    let (_, value) = pairs.find(|(own, _)| own == key)?;
    value.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_counted_by_the_sizes_of_pages() {
        for (query, size, before) in [
            ("per_page=100", 100, None),
            ("page=501&per_page=100", 100, Some(50_000)),
            ("page=501&per_page=10", 10, Some(5_000)),
            ("page=2", 100, Some(100)),
            ("page=0&per_page=10", 10, Some(0)),
        ] {
            let mut url = Url::parse("https://forge.example/list").unwrap();
            url.set_query(Some(query));
            let found = (page_size(&url), rows_before(&url));
            assert_eq!(found, (size, before), "{query}");
        }
    }

    #[test]
    fn a_smaller_page_begins_at_the_same_entry() {
        for (query, smaller) in [
            ("per_page=100", Some("per_page=10")),
            ("a=b&page=3&per_page=100", Some("a=b&page=21&per_page=10")),
            ("page=1&per_page=10", Some("page=1&per_page=1")),
            ("page=2&per_page=30", Some("page=11&per_page=3")),
            ("page=4&per_page=3", Some("page=10&per_page=1")),
            ("cursor=x%3D&per_page=100", Some("cursor=x%3D&per_page=10")),
            ("per_page=1&page=7", None),
            ("page=7", None),
        ] {
            let mut url = Url::parse("https://forge.example/list").unwrap();
            url.set_query(Some(query));
            let found = smaller_page(&url);
            let found = found.as_ref().and_then(Url::query);
            assert_eq!(found, smaller, "{query}");
        }
    }
}
