//! Footers, requests and budgets, without a mount.

use super::*;
use crate::tables::parquet::tests::tail;
use crate::tables::safetensors::tests::head;

const MIB: u64 = 1 << 20;
/// A request of the kernel.
const WINDOW: u64 = 256 << 10;
const BUDGET: StreamBudget = StreamBudget { window_bytes: MIB, waste_percent: 25, cache_bytes: 192 * MIB };

/// A file of row groups with five columns each, all of a size; and its size.
fn file(row_groups: u64, chunk: u64) -> (Arc<Columns>, u64) {
    let columns = AllColumns::default().open(1, 1);
    let groups: Vec<Vec<_>> =
        (0..row_groups).map(|group| (0..5).map(|column| place(group, column, chunk)).collect()).collect();
    let tail = tail(&groups);
    let start = place(row_groups, 0, chunk).start;
    let size = start + tail.len() as u64;
    columns.read(start, &tail, size);
    (columns, size)
}

fn place(group: u64, column: u64, chunk: u64) -> Range<u64> {
    let start = 4 + (group * 5 + column) * chunk;
    start..start + chunk
}

/// What is requested for a chunk of 1 MiB that begins with a request of the kernel: it begins
/// four bytes after a page, so the fifth request has its last bytes.
fn request(group: u64, column: u64) -> Range<u64> {
    let start = place(group, column, MIB).start / PAGE * PAGE;
    start..start + 5 * WINDOW
}

/// Reads a range as a kernel does; returns what is requested ahead.
fn read(columns: &Columns, bytes: Range<u64>) -> Vec<Range<u64>> {
    let start = bytes.start / PAGE * PAGE;
    let requests = (start..bytes.end).step_by(WINDOW as usize);
    requests.flat_map(|at| columns.requests(at..at + WINDOW, || Some(BUDGET))).collect()
}

#[test]
fn the_first_read_of_a_chunk_requests_all_of_it() {
    let (columns, _) = file(4, MIB);
    let start = place(0, 3, MIB).start / PAGE * PAGE;
    assert_eq!(columns.requests(start..start + WINDOW, || Some(BUDGET)), [request(0, 3)]);
    assert!(columns.requests(start + WINDOW..start + 2 * WINDOW, || Some(BUDGET)).is_empty());
    let middle = place(1, 3, MIB).start + 100 * PAGE;
    assert!(
        columns.requests(middle..middle + WINDOW, || Some(BUDGET)).is_empty(),
        "a read within a chunk says nothing"
    );
}

#[test]
fn bytes_that_were_read_before_the_request_of_their_chunk_are_used() {
    let (columns, _) = file(4, MIB);
    let chunk = request(0, 3);
    let windows: Vec<_> = (chunk.start..chunk.end).step_by(WINDOW as usize).collect();
    for at in [1, 2, 3, 4, 0].map(|at| windows[at]) {
        columns.requests(at..at + WINDOW, || Some(BUDGET));
    }
    let state = columns.state();
    assert_eq!(state.used, MIB);
    assert!(state.unread_begun < WINDOW, "of the last request of the kernel, bytes of the next chunk");
}

/// By `O_DIRECT`, or without the kernel's cache.
#[test]
fn a_program_that_reads_past_the_kernel_gets_no_more_than_the_chunk() {
    let (columns, _) = file(4, MIB);
    let chunk = place(0, 3, MIB);
    let first_page = chunk.start / PAGE * PAGE;
    let whole = first_page..chunk.end;
    assert_eq!(columns.requests(chunk.start..chunk.start + 1000, || Some(BUDGET)), [whole]);
}

#[test]
fn columns_of_a_row_group_are_requested_of_the_next_ones() {
    let (columns, _) = file(100, MIB);
    let mut requested = Vec::new();
    for (group, column) in [(0, 1), (0, 3), (1, 1), (1, 3), (2, 1)] {
        requested.extend(read(&columns, place(group, column, MIB)));
    }
    let expected = [(0, 1), (0, 3), (1, 1), (1, 3), (2, 1), (2, 3), (3, 1), (3, 3)];
    assert_eq!(requested, expected.map(|(group, column)| request(group, column)));
}

/// Kernels read past the end of a chunk, and so the begin of the next one.
#[test]
fn readahead_of_the_kernel_begins_no_chunk() {
    let (columns, _) = file(4, MIB);
    let chunk = place(0, 1, MIB);
    assert_eq!(read(&columns, chunk.start..chunk.end + WINDOW / 2), [request(0, 1)]);
}

#[test]
fn a_fault_at_the_begin_of_a_chunk_requests_it() {
    let (columns, _) = file(4, MIB);
    let chunk = place(2, 1, MIB);
    let start = chunk.start / PAGE * PAGE - WINDOW / 2;
    let request = start + WINDOW / 2..start + 5 * WINDOW;
    assert_eq!(columns.requests(start..start + WINDOW, || Some(BUDGET)), [request]);
}

#[test]
fn a_footer_is_read_in_parts_and_in_any_order() {
    let groups: Vec<Vec<_>> =
        (0..400).map(|group| (0..5).map(|column| place(group, column, 1000)).collect()).collect();
    let tail = tail(&groups);
    let start = place(400, 0, 1000).start;
    let size = start + tail.len() as u64;
    let columns = Columns::default();
    let parts: Vec<(usize, &[u8])> =
        tail.chunks(4096).enumerate().map(|(at, part)| (at * 4096, part)).collect();
    assert!(parts.len() > 8, "{}", parts.len());
    let last = parts.len() - 1;
    for at in [1, last, 3, 0, 3].into_iter().chain((4..last).chain([2])) {
        assert!(columns.requests(0..4096, || Some(BUDGET)).is_empty());
        columns.read(start + parts[at].0 as u64, parts[at].1, size);
    }
    assert_eq!(columns.requests(0..4096, || Some(BUDGET)).len(), 1);
}

/// Bytes of chunks that are requested and not used are bounded, whatever is read.
#[test]
fn readers_that_leave_each_chunk_waste_little() {
    let (columns, _) = file(1000, 3 * MIB);
    let mut requested = 0;
    for group in 0..1000 {
        for column in [0, 2, 4] {
            let start = place(group, column, 3 * MIB).start / PAGE * PAGE;
            let requests = columns.requests(start..start + WINDOW, || Some(BUDGET));
            requested += requests.iter().map(|range| range.end - range.start).sum::<u64>();
        }
    }
    // Each chunk has one read, and its request up to one of the kernel past its end.
    let read = requested / (3 * MIB) * WINDOW;
    assert!(requested - 2 * read <= (16 + 2 * 64) * MIB + read / 4, "{requested}, {read} of it read");
    assert!(requested > 32 * MIB, "{requested}");
}

#[test]
fn small_chunks_are_one_request_together() {
    let columns = Columns::default();
    let groups = [(0..40).map(|column| 4 + 100 * column..104 + 100 * column).collect()];
    let tail = tail(&groups);
    columns.read(WINDOW, &tail, WINDOW + tail.len() as u64);
    assert_eq!(columns.requests(0..WINDOW, || Some(BUDGET)).len(), 1);
    assert_eq!(columns.state().used, 4000, "each byte once");
}

#[test]
fn a_chunk_that_is_read_again_is_requested_again() {
    let (columns, _) = file(4, MIB);
    let [first, again] = [(); 2].map(|()| read(&columns, place(0, 1, MIB)));
    assert_eq!([first.first(), again.first()], [Some(&request(0, 1)); 2]);
    // A file that is opened again may have lost all its pages.
    let all = AllColumns::default();
    let tail = tail(&[vec![4..50, 50..100]]);
    let size = 100 + tail.len() as u64;
    for _ in 0..2 {
        let columns = all.open(1, 1);
        all.read(&columns, 100, &tail, size);
        let requests = columns.requests(0..50, || Some(BUDGET));
        assert!(requests.iter().eq([&(0..50)]), "{requests:?}");
    }
}

#[test]
fn chunks_that_are_read_without_a_request_are_not_requested_later() {
    let (columns, _) = file(2, 100 * MIB);
    let none = StreamBudget { window_bytes: 4096, waste_percent: 0, cache_bytes: 0 };
    let start = |column| place(0, column, 100 * MIB).start / PAGE * PAGE;
    assert!(columns.requests(start(0)..start(0) + WINDOW, || Some(none)).len() <= 1);
    columns.state().unread_begun = 1 << 40;
    assert!(
        columns.requests(start(1)..start(1) + WINDOW, || Some(BUDGET)).is_empty(),
        "the budget is used up"
    );
    columns.state().unread_begun = 0;
    let requests = columns.requests(start(2)..start(2) + WINDOW, || Some(BUDGET));
    assert!(requests.iter().map(|range| range.start).eq([start(2)]), "{requests:?}");
}

#[test]
fn written_files_have_no_columns() {
    let all = AllColumns::default();
    let tail = tail(&[vec![4..50, 50..100]]);
    let columns = all.open(1, 1);
    all.read(&columns, 100, &tail, 100 + tail.len() as u64);
    assert!(columns.is_known());
    all.forget(1);
    assert!(!columns.is_known() && !all.open(1, 1).is_known());
}

/// A file of tensors, all of a size; and where each of them is.
fn tensors_of(count: u64, size: u64) -> (Columns, Vec<Range<u64>>) {
    let places: Vec<_> = (0..count).map(|number| number * size..(number + 1) * size).collect();
    let head = head(&places);
    let start = head.len() as u64;
    let columns = Columns::default();
    let places: Vec<_> = places.into_iter().map(|place| start + place.start..start + place.end).collect();
    let file = start + count * size;
    for (at, part) in head.chunks(100).enumerate() {
        columns.read(at as u64 * 100, part, file);
    }
    assert!(columns.is_known());
    (columns, places)
}

/// A fault of a mapped page reads half a window before it.
fn fault(columns: &Columns, offset: u64) -> Vec<Range<u64>> {
    let start = (offset / PAGE * PAGE).saturating_sub(WINDOW / 2);
    columns.requests(start..start + WINDOW, || Some(BUDGET))
}

#[test]
fn a_copy_of_a_mapped_tensor_begins_with_its_last_page_and_requests_all_of_it() {
    let (columns, places) = tensors_of(6, 5 * MIB);
    let first_page = |place: &Range<u64>| place.start / PAGE * PAGE;
    // The first time, the page may be wanted for the next tensor.
    assert!(fault(&columns, places[1].end - 1).is_empty());
    let middle = places[1].start + MIB / PAGE * PAGE;
    let requests = columns.requests(middle..middle + WINDOW, || Some(BUDGET));
    assert!(requests[0].start == middle / PAGE * PAGE && requests[0].end >= places[1].end, "{requests:?}");
    let requests = fault(&columns, places[3].end - 1);
    assert!(requests[0].start == first_page(&places[3]) && requests[0].end >= places[3].end, "{requests:?}");
    // The first page is no second read of the tensor.
    columns.requests(first_page(&places[3])..places[3].start + WINDOW, || Some(BUDGET));
    assert_eq!(columns.state().lost, 0);
    let ahead = read(&columns, places[3].start + WINDOW..places[3].end - WINDOW);
    assert!(ahead.iter().all(|range| range.start >= first_page(&places[4])), "{ahead:?}");
    let bytes: u64 = ahead.iter().map(|range| range.end - range.start).sum();
    assert!(bytes > MIB && bytes <= 10 * MIB, "{ahead:?}");
}

/// Each reader reads a tensor in order, in turns with the others.
#[test]
fn readers_of_several_tensors_are_never_requested_what_they_have_read() {
    for readers in [1, 2, 4, 8] {
        let (columns, places) = tensors_of(8, 60 * MIB);
        let (mut requested, mut read) = (0, 0);
        for step in 0..60 * MIB / WINDOW {
            for (reader, place) in places.iter().enumerate().step_by(8 / readers) {
                let at = place.start / PAGE * PAGE + step * WINDOW;
                read += WINDOW;
                for range in columns.requests(at..at + WINDOW, || Some(BUDGET)) {
                    requested += range.end - range.start;
                    let behind = place.start < range.end && range.end <= at;
                    assert!(!behind, "{readers} readers: {range:?} for reader {reader} at {at}");
                }
            }
        }
        let most = read + read / 4 + (16 + 2 * 8 + 1) * MIB;
        assert!(requested <= most && requested >= read / 5 * 2, "{readers} readers: {requested} of {read}");
    }
}

#[test]
fn a_fault_at_the_begin_of_a_tensor_begins_not_the_one_before() {
    let (columns, places) = tensors_of(4, 60 * MIB);
    read(&columns, places[0].start..places[0].start + 58 * MIB);
    assert!(columns.state().chunks[1].requested.is_some() && !columns.state().chunks[1].is_requested());
    fault(&columns, places[2].start);
    assert!(!columns.state().chunks[1].is_begun);
    read(&columns, places[1].clone());
    let state = columns.state();
    assert!(state.lost == 0 && state.chunks[1].is_requested(), "{:?}", state.chunks[1]);
}

#[test]
fn tensors_that_are_read_in_reverse_order_are_not_taken_for_copies() {
    let (columns, places) = tensors_of(4, 5 * MIB);
    for place in places.iter().rev() {
        fault(&columns, place.start);
        let next = place.start / PAGE * PAGE + WINDOW / 2;
        columns.requests(next..next + WINDOW, || Some(BUDGET));
        assert!(!columns.state().copies, "{place:?}");
    }
    assert!(columns.state().chunks.iter().all(|chunk| chunk.is_begun && chunk.is_requested()));
}

/// More must not be requested than the cache holds: the oldest pages, which the reader needs next,
/// would leave it.
#[test]
fn a_reader_of_long_tensors_is_requested_no_more_than_a_part_of_the_cache() {
    let (columns, places) = tensors_of(2, 800 * MIB);
    let mut most = 0;
    for place in &places {
        for at in (place.start / PAGE * PAGE..place.end).step_by(WINDOW as usize) {
            columns.requests(at..at + WINDOW, || Some(BUDGET));
            let state = columns.state();
            most = most.max(state.unread_begun + state.unread_ahead);
        }
    }
    assert!(most <= BUDGET.cache_bytes / 2, "{most}");
}

/// The kernel may have lost a file's pages since it was read.
#[test]
fn a_second_pass_is_requested_as_the_first_one() {
    let (columns, places) = tensors_of(4, 100 * MIB);
    let passes = [(); 3].map(|()| {
        let requests = read(&columns, places[0].start..places[3].end);
        columns.state().forget_reads();
        requests.iter().map(|range| range.end - range.start).sum::<u64>()
    });
    assert!(passes.iter().all(|&bytes| bytes > 350 * MIB), "{passes:?}");
}

/// An embedding whose first row is read, and then any others.
#[test]
fn random_reads_of_a_tensor_request_little() {
    let (columns, places) = tensors_of(1, 1000 * MIB);
    let mut random = bowwave_core::Random::new(7);
    let mut requested = 0;
    let offsets = std::iter::once(0).chain((0..2000).map(|_| random.below(1000 * MIB - 1)));
    for offset in offsets {
        let requests = fault(&columns, places[0].start + offset);
        requested += requests.iter().map(|range| range.end - range.start).sum::<u64>();
    }
    assert!(requested <= 24 * MIB, "{requested}");
}

#[test]
fn a_read_that_begins_in_the_last_page_of_a_tensor_is_for_the_next_one() {
    let (columns, places) = tensors_of(4, 5 * MIB);
    let requests = columns.requests(places[2].start..places[2].start + 1000, || Some(BUDGET));
    assert!(
        requests[0].start == places[2].start / PAGE * PAGE && requests[0].end >= places[2].end,
        "{requests:?}"
    );
    assert!(requests[0].end < places[2].end + WINDOW && requests.len() == 1, "{requests:?}");
}

/// Bytes of tensors that are requested and not used are bounded, as those of columns.
#[test]
fn readers_that_leave_each_tensor_waste_little() {
    let (columns, places) = tensors_of(1000, 3 * MIB);
    let mut requested = 0;
    for place in &places {
        let start = place.start / PAGE * PAGE;
        let requests = columns.requests(start..start + WINDOW, || Some(BUDGET));
        requested += requests.iter().map(|range| range.end - range.start).sum::<u64>();
    }
    let read = places.len() as u64 * WINDOW;
    // What a fault of the last page reads is not counted.
    assert!(requested <= (16 + 2 * 64) * MIB + read * 5 / 4 + read, "{requested}, {read} read");
    assert!(requested > 32 * MIB, "{requested}");
}

#[test]
fn a_long_tensor_is_requested_in_parts_and_the_end_of_the_next_one_ahead() {
    let (columns, places) = tensors_of(4, 40 * MIB);
    let mut requested = fault(&columns, places[0].end - 1);
    requested.extend(read(&columns, places[0].start..places[0].end));
    let all = merged(requested.clone());
    assert!(all.iter().any(|range| range.start <= places[0].start && range.end >= places[0].end), "{all:?}");
    assert!(requested[0].end <= places[0].start + 18 * MIB, "{requested:?}");
    let last_page = (places[1].end - 1) / PAGE * PAGE;
    assert!(requested.contains(&(last_page - WINDOW / 2..last_page + WINDOW / 2)), "{requested:?}");
    let state = columns.state();
    assert!(state.lost == 0 && state.chunks[0].unread <= WINDOW, "{}", state.chunks[0].unread);
}

/// Tables of others may say anything: chunks that overlap, or of no row group in order.
#[test]
fn chunks_of_wrong_tables_are_counted_right() {
    let mut random = bowwave_core::Random::new(1);
    for round in 0..600 {
        let groups: Vec<Vec<_>> = (0..random.below(20))
            .map(|_| {
                let chunk = |_| {
                    let start = 4 + random.below(4 * MIB);
                    start..start + 1 + random.below(2 * MIB)
                };
                (0..20).map(chunk).collect()
            })
            .collect();
        let columns = Columns::default();
        if round % 2 == 0 {
            let tail = tail(&groups);
            columns.read(8 * MIB, &tail, 8 * MIB + tail.len() as u64);
        } else {
            columns.read(0, &head(&groups.concat()), 8 * MIB);
        }
        assert!(columns.is_known() || groups.is_empty());
        for _ in 0..200 {
            let start = random.below(2048) * PAGE;
            let most = if random.below(2) == 0 { WINDOW } else { PAGE };
            columns.requests(start..start + 1 + random.below(most), || Some(BUDGET));
            if random.below(50) == 0 {
                columns.state().forget_reads();
            }
        }
        let state = columns.state();
        let unread: u64 = state.chunks.iter().map(|chunk| chunk.unread).sum();
        assert_eq!(unread, state.unread_begun + state.unread_ahead);
    }
}

/// The largest footer, of one column chunk in many copies.
#[test]
fn a_page_that_begins_many_chunks_is_no_long_work() {
    let (tail, columns) = (tail(&[vec![4..100; 200_000]]), Columns::default());
    columns.read(MIB, &tail, MIB + tail.len() as u64);
    assert!(columns.is_known());
    let begin = std::time::Instant::now();
    assert_eq!(columns.requests(0..WINDOW, || Some(BUDGET)).len(), 1);
    // 50 ms on an idle machine; with work for each pair of chunks, hours.
    assert!(begin.elapsed().as_secs() < 20);
}

#[test]
fn the_last_page_may_be_shorter_than_the_trailer() {
    let (all, tail) = (AllColumns::default(), tail(&[vec![4..50, 50..100]]));
    let (columns, size) = (all.open(1, 1), 100 + tail.len() as u64);
    let (before, last) = tail.split_at(tail.len() - 3);
    all.read(&columns, 100, before, size);
    all.read(&columns, size - 3, last, size);
    assert!(columns.is_known());
}

#[test]
fn few_files_keep_reads_before_their_end() {
    let (all, tail) = (AllColumns::default(), tail(&[vec![4..50, 50..100]]));
    let size = 100 + tail.len() as u64;
    let columns: Vec<_> = (0..=UNFINISHED_MAX as u64).map(|inode| all.open(inode, 1)).collect();
    for columns in &columns {
        all.read(columns, 100, &tail[..tail.len() - 8], size);
    }
    for columns in &columns {
        all.read(columns, size - 8, &tail[tail.len() - 8..], size);
    }
    let known = columns.iter().map(|columns| columns.state().chunks.len());
    assert!(known.eq([0].into_iter().chain([2; UNFINISHED_MAX])), "the oldest one has lost its read");
}

#[test]
fn versions_are_remembered_while_there_is_room() {
    let all = AllColumns::default();
    let known = all.open(1, 1);
    let tail = tail(&[vec![4..50, 50..100]]);
    known.read(100, &tail, 100 + tail.len() as u64);
    drop(known);
    assert!(!all.open(2, 1).is_known() && all.open(1, 1).is_known());
    assert!(!all.open(1, 2).is_known(), "another version");
}

/// Files that programs opened last are remembered.
#[test]
fn the_oldest_closed_files_are_forgotten() {
    let all = AllColumns::default();
    let tail = tail(&[(0..1000).map(|column| 4 + 8 * column..12 + 8 * column).collect()]);
    let files = CHUNKS_MAX as u64 / 1000 + 1;
    for inode in 0..files {
        let columns = all.open(inode, 1);
        all.read(&columns, 10_000, &tail, 10_000 + tail.len() as u64);
        assert!(columns.is_known());
    }
    let known = (0..files).map(|inode| all.open(inode, 1).is_known());
    let known: Vec<bool> = known.collect();
    assert!(!known[0] && known[files as usize / 2 + 2..].iter().all(|&known| known), "{known:?}");
}

/// A program that opens a file again and again has one budget.
#[test]
fn a_reopen_keeps_the_budget() {
    let all = AllColumns::default();
    let groups: Vec<Vec<_>> = (0..400).map(|group| vec![place(group, 0, 4 * MIB)]).collect();
    let (tail, start) = (tail(&groups), place(400, 0, 4 * MIB).start);
    let mut requested = 0;
    for group in 0..400 {
        let columns = all.open(1, 1);
        all.read(&columns, start, &tail, start + tail.len() as u64);
        let first = place(group, 0, 4 * MIB).start / PAGE * PAGE;
        let requests = columns.requests(first..first + PAGE, || Some(BUDGET));
        requested += requests.iter().map(|range| range.end - range.start).sum::<u64>();
    }
    assert!((100 * MIB..160 * MIB).contains(&requested), "{requested}");
}
