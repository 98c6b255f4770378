use super::*;
use crate::domain::trace::SpanId;
use crate::protocol::exposition::Exposition;

fn sender() -> Sender {
    Sender { service: "webloom-broker", instance: "i".to_owned(), since: Timestamp(1_000) }
}

fn sample_span() -> Span {
    Span {
        trace: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c,
        id: SpanId(2),
        parent: Some(SpanId(0xb7ad_6b71_6920_3331)),
        name: "attempt".to_owned(),
        side: Side::Client,
        start: Timestamp(1_500),
        end: Timestamp(2_500),
        status: Status::Error("no".to_owned()),
        attributes: vec![("webloom.attempt", Value::Int(1)), ("webloom.job.name", Value::Text("j".to_owned()))],
        events: vec![(Timestamp(1_600), "created")],
    }
}

fn sample_line() -> Line {
    Line { at: Timestamp(1_700), level: log::Level::Warn, target: "webloom::x".to_owned(), text: "said a=1".to_owned() }
}

fn sample_page() -> Vec<Metric> {
    let mut page = Exposition::default();
    page.metric("webloom_runs_ended_total", "counter", "Runs.");
    page.sample("webloom_runs_ended_total", &[("state", "success")], 3.0);
    page.single("webloom_report_bytes", "gauge", "Bytes.", 0.0);
    page.histogram("webloom_answer_seconds", "Answers.", [(0.001, 1), (60.0, 3)], 4, 70.5);
    page.into_metrics()
}

#[test]
fn a_metric_keeps_its_kind_and_its_values() {
    let request = wire::MetricsRequest::decode(&*sender().metrics(sample_page(), Timestamp(3_000))).expect("it is read");
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    let [runs, bytes, answers] = metrics.as_slice() else { panic!("{metrics:?}") };
    let Some(Data::Sum(sum)) = &runs.data else { panic!("{runs:?}") };
    let point = &sum.data_points[0];
    assert!(sum.is_monotonic && sum.aggregation_temporality == wire::CUMULATIVE);
    assert_eq!((point.as_double, point.start_time_unix_nano, point.time_unix_nano), (Some(3.0), 1_000_000_000, 3_000_000_000));
    assert_eq!(point.attributes, [text("state", "success")]);
    let Some(Data::Gauge(gauge)) = &bytes.data else { panic!("{bytes:?}") };
    assert_eq!((gauge.data_points[0].as_double, bytes.unit.as_str(), runs.unit.as_str()), (Some(0.0), "By", ""));
    let Some(Data::Histogram(histogram)) = &answers.data else { panic!("{answers:?}") };
    let point = &histogram.data_points[0];
    // The text has the count up to each bound; here each bucket has its own.
    assert_eq!((point.bucket_counts.as_slice(), point.explicit_bounds.as_slice()), ([1, 2, 1].as_slice(), [0.001, 60.0].as_slice()));
    assert_eq!((point.count, point.sum, answers.unit.as_str()), (4, Some(70.5), "s"));
}

#[test]
#[ignore = "prints the bytes for a check by another library"]
fn bytes() {
    let hex = |bytes: Vec<u8>| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let all = [
        hex(sender().traces(vec![sample_span()])),
        hex(sender().logs(vec![sample_line()])),
        hex(sender().metrics(sample_page(), Timestamp(3_000))),
    ];
    panic!("{}", all.join("\n"));
}
