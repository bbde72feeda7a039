//! Which files the code of a file names.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Module, ModuleId, Segments};

/// For each file, the other files of which it uses something, and a path by which it does so.
pub(super) type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// A path counts for the file that defines what it names: re-exports are followed, and a module alone is nothing yet. All
/// of a module (`*`) counts for the module's file too.
pub(super) fn uses(modules: &[Module]) -> Uses {
    let mut uses = Uses::new();
    for (id, module) in modules.iter().enumerate() {
        let of_file = uses.entry(module.file.clone()).or_default();
        let mut add = |file: &String, path: &Segments| {
            if *file != module.file {
                of_file.entry(file.clone()).or_insert(path.join("::"));
            }
        };
        for import in &module.imports {
            let named = Names::new(modules).resolve(id, &import.path);
            let all_of = named.module.filter(|_| import.name.is_none());
            let all_of = all_of.map(|it| &modules[it].file);
            let files = named.files.into_iter().chain(all_of);
            files.for_each(|file| add(file, &import.path));
        }
        for path in &module.mentions {
            let named = Names::new(modules).resolve(id, path);
            named.files.into_iter().for_each(|file| add(file, path));
        }
    }
    uses
}

/// What a path may name: a module, items of the same name, or both.
#[derive(Default)]
struct Named<'a> {
    module: Option<ModuleId>,
    files: BTreeSet<&'a String>,
}

impl<'a> Named<'a> {
    fn module(id: ModuleId) -> Named<'a> {
        Named {
            module: Some(id),
            files: BTreeSet::new(),
        }
    }

    fn add(&mut self, other: Named<'a>) {
        self.module = self.module.or(other.module);
        self.files.extend(other.files);
    }
}

/// One search for a path.
struct Names<'a> {
    modules: &'a [Module],
    /// Where it has looked for which name: imports may lead back to themselves.
    asked: BTreeSet<(ModuleId, String)>,
}

impl<'a> Names<'a> {
    fn new(modules: &'a [Module]) -> Names<'a> {
        Names {
            modules,
            asked: BTreeSet::new(),
        }
    }

    fn resolve(&mut self, from: ModuleId, path: &Segments) -> Named<'a> {
        let Some((first, rest)) = path.split_first() else {
            return Named::default();
        };
        let mut named = match first.as_str() {
            "crate" => Named::module(0),
            "self" => Named::module(from),
            "super" => Named::module(self.modules[from].parent),
            name => self.look_up(from, name),
        };
        for name in rest {
            // What is in an item, as a variant in an enum, is in the item's file.
            let Some(module) = named.module else {
                return named;
            };
            named = match name.as_str() {
                "super" => Named::module(self.modules[module].parent),
                name => self.look_up_in(module, name),
            };
        }
        named
    }

    /// A name behind the path of a module. One that is not found there was made by a macro, if the module calls one.
    fn look_up_in(&mut self, module: ModuleId, name: &str) -> Named<'a> {
        let mut named = self.look_up(module, name);
        let place = &self.modules[module];
        if named.module.is_none() && named.files.is_empty() && place.generates_items {
            named.files.insert(&place.file);
        }
        named
    }

    fn look_up(&mut self, module: ModuleId, name: &str) -> Named<'a> {
        let place = &self.modules[module];
        let mut named = Named {
            module: place.children.get(name).copied(),
            files: BTreeSet::new(),
        };
        // For `use inspect::inspect` the name is looked up twice: as the item, and as the module that has it.
        if !self.asked.insert((module, name.to_owned())) {
            return named;
        }
        if place.items.contains(name) {
            named.files.insert(&place.file);
        }
        for import in &place.imports {
            match &import.name {
                Some(it) if it == name => named.add(self.resolve(module, &import.path)),
                Some(_) => {}
                None => {
                    if let Some(all_of) = self.resolve(module, &import.path).module {
                        named.add(self.look_up(all_of, name));
                    }
                }
            }
        }
        named
    }
}
