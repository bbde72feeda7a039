//! How the modules of a Go repository are tested.

use super::layout::{Layout, join};

/// The command that tests the modules of the workspace in `folder`, or the module there. What belongs to a workspace above
/// is tested with it, and `./...` does not go below the module that it is in.
pub(super) fn test(layout: &Layout, folder: &str) -> Option<String> {
    let modules = modules(layout, folder);
    if !modules.is_empty() {
        let patterns: String = modules.iter().map(|it| format!(" {it}")).collect();
        return Some(format!("go test{patterns}"));
    }
    let is_in = |above: &str| uses(layout, above).iter().any(|it| it == folder);
    if !layout.has(folder, "go.mod") || layout.above(folder, is_in) {
        return None;
    }
    // Go refuses a module that the workspace above does not use.
    let is_workspace = |above: &str| !uses(layout, above).is_empty();
    Some(match layout.above(folder, is_workspace) {
        true => "GOWORK=off go test ./...".into(),
        false => "go test ./...".into(),
    })
}

/// The modules of a workspace as patterns of packages.
fn modules(layout: &Layout, folder: &str) -> Vec<String> {
    let below = |path: String| match path.strip_prefix(folder) {
        Some("") => "./...".to_owned(),
        Some(rest) => format!("./{}/...", rest.trim_start_matches('/')),
        None => format!("./{path}/..."),
    };
    uses(layout, folder).into_iter().map(below).collect()
}

/// The folders of the modules that the `go.work` of a folder uses, of those that are in the repository.
fn uses(layout: &Layout, folder: &str) -> Vec<String> {
    let text = layout.text(folder, "go.work").unwrap_or_default();
    let mut is_block = false;
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default().trim();
        let path = match line.strip_prefix("use") {
            Some(rest) if rest.trim() == "(" => {
                is_block = true;
                continue;
            }
            Some(rest) if rest.starts_with([' ', '\t']) => rest.trim(),
            Some(_) | None if is_block && line != ")" => line,
            Some(_) | None => {
                is_block = false;
                continue;
            }
        };
        let path = path.trim_matches('"').trim_end_matches('/');
        let module = match path.strip_prefix("./").unwrap_or(path) {
            "" => continue,
            "." => folder.to_owned(),
            below => join(folder, below),
        };
        if layout.has(&module, "go.mod") {
            found.push(module);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(listing: &str, work: (&str, &str)) -> Layout {
        let mut layout = Layout::parse(listing);
        layout.add_text(work.0.into(), work.1.into());
        layout
    }

    #[test]
    fn the_modules_of_a_workspace_are_tested_from_its_root() {
        let files = "go.work\napi/go.mod\ncmd/tool/go.mod\nold/go.mod";
        let text = "go 1.24\n\nuse (\n\t./api // the service\n\n\t./cmd/tool/\n\t../elsewhere\n\t./missing\n)\nreplace (\n\t./old => ./x\n)\n";
        let work = layout(files, ("go.work", text));
        let check = "go test ./api/... ./cmd/tool/...";
        assert_eq!(test(&work, "").as_deref(), Some(check));
        assert_eq!(test(&work, "api"), None);
        let old = "GOWORK=off go test ./...";
        assert_eq!(test(&work, "old").as_deref(), Some(old));
        let one = layout("go.work\ngo.mod\na/go.mod", ("go.work", "use .\nuse ./a"));
        let check = "go test ./... ./a/...";
        assert_eq!(test(&one, "").as_deref(), Some(check));
        let below = layout("b/go.work\nb/a/go.mod", ("b/go.work", "use ./a"));
        assert_eq!(test(&below, "b").as_deref(), Some("go test ./a/..."));
    }

    #[test]
    fn a_module_without_a_workspace_is_tested_by_itself() {
        let alone = Layout::parse("go.mod\na/go.mod");
        assert_eq!(test(&alone, "a").as_deref(), Some("go test ./..."));
        let unread = Layout::parse("go.work\na/go.mod");
        assert_eq!(test(&unread, ""), None);
        assert_eq!(test(&unread, "a").as_deref(), Some("go test ./..."));
    }
}
