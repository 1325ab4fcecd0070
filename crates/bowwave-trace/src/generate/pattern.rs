//! State of each pattern: computes the next block.

use super::{Pattern, Random, Scatter, SpecError, Zipf};

/// Regions of the file of [`Pattern::Oltp`].
const REGIONS: u64 = 64;
/// After one in this many reads of [`Pattern::Oltp`], the next block is read too.
const ONE_IN: u64 = 8;

/// State of a pattern.
#[derive(Clone, Debug)]
pub(super) struct State {
    blocks: u64,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Sequential { next: u64 },
    Random,
    Interleaved { streams: u64, turn: u64, step: u64 },
    Strided { stride: u64, lane: u64, next: u64 },
    Backward { left: u64 },
    Clustered { longest: u64, next: u64, left: u64 },
    Zipf { law: Zipf, scatter: Scatter },
    Oltp { regions: u64, law: Zipf, scatter: Scatter, follow: Option<u64> },
}

impl State {
    /// The start of `pattern` over a file of `blocks` blocks, at least one.
    pub(super) fn new(
        pattern: &Pattern,
        blocks: u64,
        block_bytes: u64,
        random: &mut Random,
    ) -> Result<Self, SpecError> {
        let wrong = |field, value: String, bound: String| Err(SpecError { field, value, bound });
        let kind = match *pattern {
            Pattern::Sequential => Kind::Sequential { next: 0 },
            Pattern::Random => Kind::Random,
            Pattern::Interleaved { streams } if !(1..=blocks).contains(&streams.into()) => {
                return wrong(
                    "streams",
                    streams.to_string(),
                    format!("from 1 to the {blocks} blocks of the file"),
                );
            }
            Pattern::Interleaved { streams } => {
                Kind::Interleaved { streams: streams.into(), turn: 0, step: 0 }
            }
            Pattern::Strided { stride_bytes: 0 } => {
                return wrong("stride_bytes", "0".to_owned(), "at least 1".to_owned());
            }
            Pattern::Strided { stride_bytes } => {
                Kind::Strided { stride: stride_bytes.div_ceil(block_bytes), lane: 0, next: 0 }
            }
            Pattern::Backward => Kind::Backward { left: blocks },
            Pattern::Clustered { cluster_bytes: 0 } => {
                return wrong("cluster_bytes", "0".to_owned(), "at least 1".to_owned());
            }
            Pattern::Clustered { cluster_bytes } => {
                Kind::Clustered { longest: cluster_bytes.div_ceil(block_bytes).min(blocks), next: 0, left: 0 }
            }
            Pattern::Zipf { exponent } => {
                Kind::Zipf { law: law(blocks, exponent)?, scatter: Scatter::new(blocks, random) }
            }
            Pattern::Oltp { exponent } => {
                let regions = REGIONS.min(blocks);
                let (law, scatter) = (law(regions, exponent)?, Scatter::new(regions, random));
                Kind::Oltp { regions, law, scatter, follow: None }
            }
            Pattern::Phases(_) => {
                return wrong(
                    "phases",
                    "phases".to_owned(),
                    "patterns other than phases themselves".to_owned(),
                );
            }
        };
        Ok(Self { blocks, kind })
    }

    /// The next block.
    pub(super) fn next(&mut self, random: &mut Random) -> u64 {
        let blocks = self.blocks;
        match &mut self.kind {
            Kind::Sequential { next } => {
                let block = *next;
                *next = (block + 1) % blocks;
                block
            }
            Kind::Random => random.below(blocks),
            Kind::Interleaved { streams, turn, step } => {
                let part = blocks / *streams;
                let block = *turn * part + *step;
                *turn += 1;
                if *turn == *streams {
                    (*turn, *step) = (0, (*step + 1) % part);
                }
                block
            }
            Kind::Strided { stride, lane, next } => {
                let block = *next;
                *next = block.saturating_add(*stride);
                if *next >= blocks {
                    *lane = (*lane + 1) % (*stride).min(blocks);
                    *next = *lane;
                }
                block
            }
            Kind::Backward { left } => {
                *left = if *left == 0 { blocks } else { *left } - 1;
                *left
            }
            Kind::Clustered { longest, next, left } => {
                if *left == 0 {
                    let shortest = longest.div_ceil(4);
                    *left = shortest + random.below(*longest - shortest + 1);
                    *next = random.below(blocks - *left + 1);
                }
                (*next, *left) = (*next + 1, *left - 1);
                *next - 1
            }
            Kind::Zipf { law, scatter } => scatter.of(law.draw(random)),
            Kind::Oltp { regions, law, scatter, follow } => {
                if let Some(block) = follow.take() {
                    return block;
                }
                let region = scatter.of(law.draw(random));
                // Regions differ by at most one block, and cover the file.
                let at =
                    |region: u64| (u128::from(region) * u128::from(blocks) / u128::from(*regions)) as u64;
                let (start, end) = (at(region), at(region + 1));
                let block = start + random.below(end - start);
                *follow = Some(block + 1).filter(|&next| random.below(ONE_IN) == 0 && next < blocks);
                block
            }
        }
    }
}

/// Zipf's law over these ranks.
fn law(ranks: u64, exponent: f64) -> Result<Zipf, SpecError> {
    if (0.0..=10.0).contains(&exponent) {
        return Ok(Zipf::new(ranks, exponent));
    }
    Err(SpecError { field: "exponent", value: exponent.to_string(), bound: "from 0 to 10".to_owned() })
}
