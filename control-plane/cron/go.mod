// What the judge compares cron schedules with: the module that Kubernetes uses, in the version that it uses.
module keleustes.invalid/control-plane/cron

go 1.26.0

require github.com/robfig/cron/v3 v3.0.1
