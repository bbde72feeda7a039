//! Which tools the model is offered when not all of them fit.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use agentmine_llm::ToolSpec;
use agentmine_mcp::Catalog;

use super::servers::MAX_TOOLS;

/// Maximum total size in bytes of the names, descriptions and schemas sent with every request: about
/// 32,000 tokens, a quarter of a common model's context. Servers themselves have no such limit.
pub(super) const MAX_SPECS: usize = 128 * 1024;

/// A candidate for the tools offered to the model.
pub(super) struct Offered {
    pub(super) rank: Rank,
    pub(super) server: String,
    pub(super) spec: ToolSpec,
}

/// The order in which tools are admitted when not all of them fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    BuiltIn,
    OperatorConfigured,
    RepositoryConfigured,
}

/// The tools offered to the model.
pub(crate) struct Admitted {
    /// Sorted by name.
    pub(super) specs: Arc<[ToolSpec]>,
    /// The servers whose tools are not all offered.
    pub(super) omitted: BTreeSet<String>,
}

/// The tools offered from the newest catalog. Nothing else that decides about them changes during a session.
#[derive(Default)]
pub(crate) struct OfNewest(Mutex<Option<(Arc<Catalog>, Arc<Admitted>)>>);

impl OfNewest {
    /// Computes them if the catalog is another one than the last time.
    pub(super) fn get(
        &self,
        catalog: Arc<Catalog>,
        admit: impl FnOnce(&Catalog) -> Admitted,
    ) -> Arc<Admitted> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((of, admitted)) if Arc::ptr_eq(of, &catalog) => Arc::clone(admitted),
            _ => {
                let admitted = Arc::new(admit(&catalog));
                *known = Some((catalog, Arc::clone(&admitted)));
                admitted
            }
        }
    }
}

/// Admits tools in order of rank and name until the limits are reached. A tool that is too large is
/// skipped; smaller ones after it may still fit.
pub(super) fn within_limits(mut offered: Vec<Offered>) -> Admitted {
    offered.sort_by(|a, b| (a.rank, &a.spec.name).cmp(&(b.rank, &b.spec.name)));
    let (mut specs, mut omitted, mut room) = (Vec::new(), BTreeSet::new(), MAX_SPECS);
    for Offered { rank, server, spec } in offered {
        let size = spec.name.len() + spec.description.len() + spec.input_schema.to_string().len();
        if rank == Rank::BuiltIn || specs.len() < MAX_TOOLS && size <= room {
            room = room.saturating_sub(size);
            specs.push(spec);
        } else {
            omitted.insert(server);
        }
    }
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    Admitted {
        specs: specs.into(),
        omitted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn offered(rank: Rank, name: &str, size: usize) -> Offered {
        Offered {
            rank,
            server: format!("server {name}"),
            spec: ToolSpec {
                name: name.into(),
                description: "x".repeat(size),
                input_schema: json!({}),
            },
        }
    }

    #[test]
    fn repository_tools_do_not_displace_others() {
        let Admitted { specs, omitted } = within_limits(vec![
            offered(Rank::RepositoryConfigured, "a_big", MAX_SPECS - 100),
            offered(Rank::RepositoryConfigured, "b_small", 50),
            offered(Rank::OperatorConfigured, "c", 1000),
            offered(Rank::BuiltIn, "text_editor", 1000),
        ]);
        let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(names, ["b_small", "c", "text_editor"]);
        assert_eq!(omitted, BTreeSet::from(["server a_big".to_owned()]));
        let many =
            (0..MAX_TOOLS + 5).map(|n| offered(Rank::RepositoryConfigured, &format!("a{n:03}"), 1));
        let more = [
            offered(Rank::OperatorConfigured, "z", 1),
            offered(Rank::BuiltIn, "zz", 1),
        ];
        let Admitted { specs, omitted } = within_limits(many.chain(more).collect());
        assert_eq!(specs.len(), MAX_TOOLS);
        assert_eq!(specs.last().unwrap().name, "zz");
        assert_eq!(omitted.len(), 7);
    }
}
