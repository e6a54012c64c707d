// A daprd with three state stores and no other component: what tests, benchmarks and the demo need.
//
// Dapr's own main links every component there is, or panics without a build tag; this one takes the same flags.
package main

import (
	"context"
	"log"
	"os"
	"reflect"

	postgres "github.com/dapr/components-contrib/state/postgresql/v2"
	"github.com/dapr/components-contrib/state/redis"
	"github.com/dapr/components-contrib/state/sqlite"
	"github.com/dapr/dapr/cmd/daprd/options"
	"github.com/dapr/dapr/pkg/components"
	"github.com/dapr/dapr/pkg/components/state"
	"github.com/dapr/dapr/pkg/healthz"
	"github.com/dapr/dapr/pkg/metrics"
	"github.com/dapr/dapr/pkg/modes"
	"github.com/dapr/dapr/pkg/runtime"
	"github.com/dapr/dapr/pkg/runtime/registry"
	"github.com/dapr/dapr/pkg/security"
	"github.com/dapr/kit/concurrency"
	"github.com/dapr/kit/logger"
	"github.com/dapr/kit/signals"
)

func main() {
	flags, err := options.New(os.Args[1:])
	if err == nil {
		err = logger.ApplyOptionsToLoggers(&flags.Logger)
	}
	if err == nil {
		registerStores()
		err = serve(signals.Context(), flags)
	}
	if err != nil {
		log.Fatalf("daprd: %v", err)
	}
}

func registerStores() {
	stores := state.DefaultRegistry
	stores.Logger = logger.NewLogger("dapr.contrib")
	stores.RegisterComponent(sqlite.NewSQLiteStateStore, "sqlite")
	stores.RegisterComponent(redis.NewRedisStateStore, "redis")
	second := components.VersionConstructor{Version: "v2", Constructor: postgres.NewPostgreSQLStateStore}
	stores.RegisterComponentWithVersions("postgresql", components.Versioning{Preferred: second, Default: "v2"})
}

func serve(ctx context.Context, flags *options.Options) error {
	health := healthz.New()
	provider, err := security.New(ctx, security.Options{
		AppID:                   flags.AppID,
		Mode:                    modes.DaprMode(flags.Mode),
		MTLSEnabled:             flags.EnableMTLS,
		SentryAddress:           flags.SentryAddress,
		TrustAnchors:            flags.TrustAnchors,
		ControlPlaneNamespace:   flags.ControlPlaneNamespace,
		ControlPlaneTrustDomain: flags.ControlPlaneTrustDomain,
		Healthz:                 health,
	})
	if err != nil {
		return err
	}
	sidecar := func(ctx context.Context) error {
		handler, err := provider.Handler(ctx)
		if err != nil {
			return err
		}
		config := configure(flags)
		config.Healthz, config.Security, config.Metrics.Healthz = health, handler, health
		dapr, err := runtime.FromConfig(ctx, config)
		if err != nil {
			return err
		}
		return dapr.Run(ctx)
	}
	return concurrency.NewRunnerManager(provider.Run, sidecar).Run(ctx)
}

// configure takes over each flag whose name and type are those of a setting; the rest have other names.
func configure(flags *options.Options) *runtime.Config {
	config := &runtime.Config{
		ApplicationPort:  flags.AppPort,
		SchedulerStreams: flags.SchedulerJobStreams,
		Registry:         registry.NewOptions(),
		Metrics: metrics.Options{
			Enabled:       flags.Metrics.Enabled(),
			Port:          flags.Metrics.Port(),
			ListenAddress: flags.Metrics.ListenAddress(),
			Namespace:     metrics.DefaultMetricNamespace,
			Log:           logger.NewLogger("dapr.metrics"),
		},
	}
	given, settings := reflect.ValueOf(flags).Elem(), reflect.ValueOf(config).Elem()
	for _, field := range reflect.VisibleFields(settings.Type()) {
		if flag := given.FieldByName(field.Name); flag.IsValid() && flag.Type() == field.Type {
			settings.FieldByIndex(field.Index).Set(flag)
		}
	}
	return config
}
