//! The modules of one library or program: what each defines, imports and names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::visit::{self, Visit};

/// The index of a module in the list that [`modules`] returns. The first one is the root.
pub(super) type ModuleId = usize;

/// The segments of a path: `["crate", "task", "Task"]`.
pub(super) type Segments = Vec<String>;

#[derive(Default)]
pub(super) struct Module {
    /// Its path below the folder of the root file.
    pub file: String,
    pub parent: ModuleId,
    pub children: BTreeMap<String, ModuleId>,
    /// Items that are defined here.
    pub items: BTreeSet<String>,
    /// A macro or an included file defines further items, whose names are not read.
    pub generates_items: bool,
    pub imports: Vec<Import>,
    /// Paths in code outside of `use`.
    pub mentions: BTreeSet<Segments>,
}

pub(super) struct Import {
    pub path: Segments,
    /// The name by which this module knows what it imports; `None` for `*`.
    pub name: Option<String>,
}

/// Reads the library or program whose root is this file. Code under `#[cfg(test)]` is skipped.
pub(super) fn modules(root: &Path) -> Vec<Module> {
    let folder = root.parent().unwrap();
    let mut reader = Reader {
        folder: folder.to_owned(),
        modules: Vec::new(),
    };
    reader.file(root, folder, 0);
    reader.modules
}

struct Reader {
    /// That of the root file.
    folder: PathBuf,
    modules: Vec<Module>,
}

impl Reader {
    /// `folder` is where the files of its submodules are.
    fn file(&mut self, file: &Path, folder: &Path, parent: ModuleId) -> ModuleId {
        let text = std::fs::read_to_string(file).unwrap();
        let syntax = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        self.module(file, folder, parent, &syntax.items)
    }

    fn module(
        &mut self,
        file: &Path,
        folder: &Path,
        parent: ModuleId,
        items: &[syn::Item],
    ) -> ModuleId {
        let id = self.modules.len();
        let shown = file.strip_prefix(&self.folder).unwrap();
        let mut module = Module {
            file: shown.to_str().unwrap().to_owned(),
            parent,
            ..Module::default()
        };
        for item in items {
            module.visit_item(item);
        }
        self.modules.push(module);
        for item in items {
            if let syn::Item::Mod(child) = item
                && !is_test_code(&child.attrs)
            {
                let name = child.ident.unraw().to_string();
                let child = self.child(file, folder, id, &name, child);
                self.modules[id].children.insert(name, child);
            }
        }
        id
    }

    fn child(
        &mut self,
        file: &Path,
        folder: &Path,
        parent: ModuleId,
        name: &str,
        child: &syn::ItemMod,
    ) -> ModuleId {
        let inner = folder.join(name);
        if let Some((_, items)) = &child.content {
            return self.module(file, &inner, parent, items);
        }
        let renamed = child.attrs.iter().any(|it| it.path().is_ident("path"));
        assert!(!renamed, "{}: `mod {name}` has a path", file.display());
        let flat = folder.join(format!("{name}.rs"));
        let nested = inner.join("mod.rs");
        self.file(if flat.exists() { &flat } else { &nested }, &inner, parent)
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let (name, attrs) = name_and_attributes(item);
        if !is_test_code(attrs) && !matches!(item, syn::Item::Mod(_)) {
            self.items.extend(name.map(|it| it.unraw().to_string()));
            visit::visit_item(self, item);
        }
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        self.generates_items |= item.ident.is_none();
        visit::visit_item_macro(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test_code(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            self.import(&mut Vec::new(), &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let segments = path.segments.iter();
            self.mentions
                .insert(segments.map(|it| it.ident.unraw().to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }

    /// `#[serde(with = "crate::time")]` names a path in a string.
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            self.tokens(list.tokens.clone());
        }
    }

    /// `pub(in crate::task)` imports nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

impl Module {
    fn import(&mut self, path: &mut Segments, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(it) => {
                path.push(it.ident.unraw().to_string());
                self.import(path, &it.tree);
                path.pop();
            }
            syn::UseTree::Name(it) => self.import_as(path, &it.ident, &it.ident),
            syn::UseTree::Rename(it) => self.import_as(path, &it.ident, &it.rename),
            syn::UseTree::Glob(_) => self.imports.push(Import {
                path: path.clone(),
                name: None,
            }),
            syn::UseTree::Group(it) => {
                for tree in &it.items {
                    self.import(path, tree);
                }
            }
        }
    }

    fn import_as(&mut self, path: &Segments, ident: &syn::Ident, name: &syn::Ident) {
        let mut path = path.clone();
        if ident != "self" {
            path.push(ident.unraw().to_string());
        }
        // `use a::b::{self}` calls it `b`.
        let name = if name == "self" {
            path.last().cloned()
        } else {
            Some(name.unraw().to_string())
        };
        self.imports.push(Import { path, name });
    }

    /// Finds the paths in what a macro or an attribute is given.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Segments::new();
        // How many colons were read since the last segment of `path`.
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(it) if it.as_char() == ':' => colons += 1,
                TokenTree::Ident(it) => {
                    if colons != 2 {
                        self.mentions.insert(std::mem::take(&mut path));
                    }
                    path.push(it.unraw().to_string());
                    colons = 0;
                }
                other => {
                    self.mentions.insert(std::mem::take(&mut path));
                    colons = 0;
                    match other {
                        TokenTree::Group(it) => self.tokens(it.stream()),
                        TokenTree::Literal(it) => self.path_in_string(&it),
                        TokenTree::Punct(_) | TokenTree::Ident(_) => {}
                    }
                }
            }
        }
        self.mentions.insert(path);
    }

    fn path_in_string(&mut self, literal: &proc_macro2::Literal) {
        let text = literal.to_string();
        if let Ok(path) = syn::parse_str::<syn::Path>(text.trim_matches('"')) {
            self.visit_path(&path);
        }
    }
}

fn is_test_code(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|it| {
        it.path().is_ident("cfg")
            && it
                .parse_args::<syn::Path>()
                .is_ok_and(|it| it.is_ident("test"))
    })
}

fn name_and_attributes(item: &syn::Item) -> (Option<&syn::Ident>, &[syn::Attribute]) {
    match item {
        syn::Item::Const(it) => (Some(&it.ident), &it.attrs),
        syn::Item::Enum(it) => (Some(&it.ident), &it.attrs),
        syn::Item::Fn(it) => (Some(&it.sig.ident), &it.attrs),
        syn::Item::Impl(it) => (None, &it.attrs),
        syn::Item::Macro(it) => (it.ident.as_ref(), &it.attrs),
        syn::Item::Mod(it) => (None, &it.attrs),
        syn::Item::Static(it) => (Some(&it.ident), &it.attrs),
        syn::Item::Struct(it) => (Some(&it.ident), &it.attrs),
        syn::Item::Trait(it) => (Some(&it.ident), &it.attrs),
        syn::Item::Type(it) => (Some(&it.ident), &it.attrs),
        syn::Item::Union(it) => (Some(&it.ident), &it.attrs),
        syn::Item::Use(it) => (None, &it.attrs),
        _ => (None, &[]),
    }
}
