-- Sends one request again and again, and prints the figures as one line of JSON. Arguments: method, path, file of the
-- body ("" for none), the number of the first request, the number of users. Placeholders: see bench/requests.py.
local method, path, body, number, users
local is_fixed, fixed

local function filled(text, values)
  return (text:gsub("{(%w+)}", values))
end

local function values_of(own)
  local user = own % users
  return {
    n = own, user = user + 1, c1 = 3 * user + 1, c2 = 3 * user + 2, c3 = 3 * user + 3,
    group = own % 20 + 1, age = 20 + own % 40, digit = own % 10,
  }
end

local function has_placeholders(text)
  for name in text:gmatch("{(%w+)}") do
    if values_of(0)[name] then return true end
  end
  return false
end

function init(arguments)
  method, path, number, users = arguments[1], arguments[2], tonumber(arguments[4]), tonumber(arguments[5])
  wrk.headers["Content-Type"] = "application/vnd.api+json"
  if arguments[3] ~= "" then
    local file = assert(io.open(arguments[3], "rb"))
    body = file:read("*a")
    file:close()
  end
  is_fixed = not (has_placeholders(path) or (body and has_placeholders(body)))
  fixed = is_fixed and wrk.format(method, path, nil, body)
end

function request()
  if is_fixed then return fixed end
  local values = values_of(number)
  number = number + 1
  return wrk.format(method, filled(path, values), nil, body and filled(body, values))
end

-- wrk counts statuses from 400 on as errors. The benchmark checks before that no server redirects.
function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests":%d,"microseconds":%d,"p50_us":%.1f,"p99_us":%.1f,"errors":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout
  ))
end
