-- One request over and over; the figures as one line of JSON. Arguments: method, target, body.
function init(arguments)
  wrk.method = arguments[1]
  wrk.headers["Content-Type"] = "application/vnd.api+json"
  if arguments[3] ~= "" then wrk.body = arguments[3] end
  prepared = wrk.format(wrk.method, arguments[2])
end

function request()
  return prepared
end

-- wrk's own count of wrong statuses begins at 400; redirects do not occur in these answers.
function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests":%d,"microseconds":%d,"p50_us":%.1f,"p99_us":%.1f,"errors":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout
  ))
end
