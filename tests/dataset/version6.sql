BEGIN TRANSACTION;
CREATE TABLE corun_members (
	corun_key TEXT NOT NULL, 
	position INTEGER NOT NULL, 
	operator_key TEXT NOT NULL, 
	schedule_key TEXT NOT NULL, 
	settings_key TEXT NOT NULL, 
	model_key TEXT, 
	alone_samples_us TEXT NOT NULL, 
	alone_median_us DOUBLE, 
	together_samples_us TEXT NOT NULL, 
	together_median_us DOUBLE, 
	error TEXT, 
	PRIMARY KEY (corun_key, position), 
	CONSTRAINT corun_members_time_or_error CHECK ((error IS NULL) <> (together_median_us IS NULL)), 
	CONSTRAINT corun_members_are_compared CHECK (error IS NOT NULL OR alone_median_us IS NOT NULL), 
	CONSTRAINT corun_members_times_are_positive CHECK (alone_median_us > 0 AND together_median_us > 0), 
	FOREIGN KEY(corun_key) REFERENCES coruns ("key"), 
	FOREIGN KEY(operator_key) REFERENCES operators ("key"), 
	FOREIGN KEY(schedule_key) REFERENCES schedules ("key"), 
	FOREIGN KEY(settings_key) REFERENCES settings ("key"), 
	FOREIGN KEY(model_key) REFERENCES models ("key")
);
INSERT INTO "corun_members" VALUES('1530667dac340a7e1bcc0ac57260ea84',0,'df21ae4df7daa4a7','d8b05bcec575058a','c1e927b8660276d0','m','[1.5]',1.5,'[2.25]',2.25,NULL);
INSERT INTO "corun_members" VALUES('1530667dac340a7e1bcc0ac57260ea84',1,'2996460672ac6ba5','d8b05bcec575058a','c1e927b8660276d0','m','[1.5]',1.5,'[2.25]',2.25,NULL);
CREATE TABLE coruns (
	"key" TEXT NOT NULL, 
	device_key TEXT NOT NULL, 
	load_before DOUBLE, 
	load_after DOUBLE, 
	foreign_load BOOLEAN NOT NULL, 
	measured_at TEXT NOT NULL, 
	PRIMARY KEY ("key"), 
	FOREIGN KEY(device_key) REFERENCES devices ("key")
);
INSERT INTO "coruns" VALUES('1530667dac340a7e1bcc0ac57260ea84','0a3b7a22667b53b7',0.0,0.25,1,'2026-11-22T06:26:07.128657+00:00');
CREATE TABLE devices (
	"key" TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	target TEXT NOT NULL, 
	processor TEXT NOT NULL, 
	cores INTEGER, 
	clock_mhz DOUBLE, 
	l1_bytes BIGINT, 
	l2_bytes BIGINT, 
	l3_bytes BIGINT, 
	memory_bytes BIGINT, 
	driver TEXT, 
	tvm_version TEXT NOT NULL, 
	llvm_version TEXT, 
	host_fingerprint TEXT NOT NULL, 
	core_type TEXT DEFAULT 'common' NOT NULL, 
	properties TEXT NOT NULL, machine_id TEXT, compiler TEXT DEFAULT 'relay' NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "devices" VALUES('0a3b7a22667b53b7','llvm','llvm -keys=cpu -mcpu=znver4','AMD EPYC 9R14 µ',2,3703.25,32768,1048576,33554432,137438953472,'550.54','0.19.0','22.1.8','0123456789abcdef','common','{"flags":["avx2","avx512f"],"governor":null,"hypervisor":true}',NULL,'relay');
CREATE TABLE explanations (
	model_key TEXT NOT NULL, 
	operator_key TEXT NOT NULL, 
	found TEXT NOT NULL, 
	explained_at TEXT NOT NULL, 
	PRIMARY KEY (model_key, operator_key), 
	FOREIGN KEY(model_key) REFERENCES models ("key"), 
	FOREIGN KEY(operator_key) REFERENCES operators ("key")
);
CREATE TABLE failures (
	"key" TEXT NOT NULL, 
	measured_key TEXT NOT NULL, 
	operator_key TEXT, 
	schedule_key TEXT, 
	settings_key TEXT NOT NULL, 
	device_key TEXT NOT NULL, 
	model_key TEXT, 
	error TEXT NOT NULL, 
	error_cause TEXT NOT NULL, 
	machine_state TEXT, 
	failed_at TEXT NOT NULL, run_id TEXT, 
	PRIMARY KEY ("key"), 
	FOREIGN KEY(operator_key) REFERENCES operators ("key"), 
	FOREIGN KEY(schedule_key) REFERENCES schedules ("key"), 
	FOREIGN KEY(settings_key) REFERENCES settings ("key"), 
	FOREIGN KEY(device_key) REFERENCES devices ("key"), 
	FOREIGN KEY(model_key) REFERENCES models ("key")
);
INSERT INTO "failures" VALUES('23274d0be0d2b147b162fda2861a39f8','fc960db7d604cf4f6d341c3f49ce4dd1','2996460672ac6ba5','d8b05bcec575058a','c1e927b8660276d0','0a3b7a22667b53b7','m','Traceback:
  ''tvm.error'' said "no"; DROP TABLE operators','operator',NULL,'2026-11-22T06:26:07.120183+00:00',NULL);
CREATE TABLE measurements (
	"key" TEXT NOT NULL, 
	operator_key TEXT NOT NULL, 
	schedule_key TEXT NOT NULL, 
	settings_key TEXT NOT NULL, 
	device_key TEXT NOT NULL, 
	model_key TEXT, 
	samples_us TEXT NOT NULL, 
	rounds INTEGER NOT NULL, 
	min_us DOUBLE, 
	median_us DOUBLE, 
	mean_us DOUBLE, 
	std_us DOUBLE, 
	ci_low_us DOUBLE, 
	ci_high_us DOUBLE, 
	load_before DOUBLE, 
	load_after DOUBLE, 
	foreign_load BOOLEAN NOT NULL, 
	energy_mj DOUBLE, 
	error TEXT, 
	complete BOOLEAN NOT NULL, 
	measured_at TEXT NOT NULL, call_overhead_us DOUBLE, steady_us DOUBLE, steady_low_us DOUBLE, steady_high_us DOUBLE, again_low_us DOUBLE, again_high_us DOUBLE, energy_cache TEXT, error_cause TEXT, settled BOOLEAN, disturbed_by TEXT, quiet_share DOUBLE, discarded_rounds INTEGER, discarded_share DOUBLE, cycles DOUBLE, instructions DOUBLE, branch_misses DOUBLE, l1_misses DOUBLE, l2_misses DOUBLE, llc_misses DOUBLE, page_faults DOUBLE, context_switches DOUBLE, dram_percent DOUBLE, sm_percent DOUBLE, occupancy_percent DOUBLE, tensor_cores_percent DOUBLE, counters_missing TEXT, run_id TEXT, 
	PRIMARY KEY ("key"), 
	CONSTRAINT measurements_time_or_error CHECK (NOT complete OR (error IS NULL) <> (median_us IS NULL)), 
	CONSTRAINT measurements_no_time_beside_error CHECK (error IS NULL OR (median_us IS NULL AND min_us IS NULL AND mean_us IS NULL AND rounds = 0)), 
	CONSTRAINT measurements_times_are_not_negative CHECK (min_us IS NULL OR min_us >= 0), 
	FOREIGN KEY(operator_key) REFERENCES operators ("key"), 
	FOREIGN KEY(schedule_key) REFERENCES schedules ("key"), 
	FOREIGN KEY(settings_key) REFERENCES settings ("key"), 
	FOREIGN KEY(device_key) REFERENCES devices ("key"), 
	FOREIGN KEY(model_key) REFERENCES models ("key")
);
INSERT INTO "measurements" VALUES('804731438bc8b1061f620ce26fc8f7d9','df21ae4df7daa4a7','d8b05bcec575058a','c1e927b8660276d0','0a3b7a22667b53b7','m','[[100.125,0.30000000000000004],[101.125,0.30000000000000004],[102.125,0.30000000000000004]]',3,50.2125,3.33333333333333314829e-01,50.7,0.0,50.0,51.0,0.0,0.015625,1,1.5,NULL,1,'2026-11-22T06:26:07.120183+00:00',NULL,0.3,0.29,0.31,0.32,0.35,'hot',NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "measurements" VALUES('fc960db7d604cf4f6d341c3f49ce4dd1','2996460672ac6ba5','d8b05bcec575058a','c1e927b8660276d0','0a3b7a22667b53b7','m','[]',0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,'Traceback:
  ''tvm.error'' said "no"; DROP TABLE operators',1,'2026-11-22T06:26:07.120183+00:00',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'operator',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE model_operators (
	model_key TEXT NOT NULL, 
	operator_key TEXT NOT NULL, 
	name TEXT NOT NULL, 
	occurrences INTEGER NOT NULL, 
	positions TEXT NOT NULL, 
	schedule_key TEXT, 
	launches TEXT, code TEXT, layers TEXT, 
	PRIMARY KEY (model_key, operator_key), 
	FOREIGN KEY(model_key) REFERENCES models ("key"), 
	FOREIGN KEY(operator_key) REFERENCES operators ("key")
);
INSERT INTO "model_operators" VALUES('m','df21ae4df7daa4a7','fused_nn_conv2d_clip',2,'[0,2]',NULL,NULL,NULL,NULL);
INSERT INTO "model_operators" VALUES('m','2996460672ac6ba5','fused_nn_conv2d_clip',1,'[1]',NULL,NULL,NULL,NULL);
CREATE TABLE model_timings (
	"key" TEXT NOT NULL, 
	model_key TEXT NOT NULL, 
	settings_key TEXT NOT NULL, 
	device_key TEXT NOT NULL, 
	before_us DOUBLE, 
	after_us DOUBLE, 
	sum_of_operators_us DOUBLE, 
	unmeasured TEXT NOT NULL, 
	details TEXT NOT NULL, 
	samples_us TEXT NOT NULL, 
	rounds INTEGER NOT NULL, 
	min_us DOUBLE, 
	median_us DOUBLE, 
	mean_us DOUBLE, 
	std_us DOUBLE, 
	ci_low_us DOUBLE, 
	ci_high_us DOUBLE, 
	load_before DOUBLE, 
	load_after DOUBLE, 
	foreign_load BOOLEAN NOT NULL, 
	energy_mj DOUBLE, 
	error TEXT, 
	complete BOOLEAN NOT NULL, 
	measured_at TEXT NOT NULL, coverage DOUBLE, call_overhead_us DOUBLE, steady_us DOUBLE, steady_low_us DOUBLE, steady_high_us DOUBLE, again_low_us DOUBLE, again_high_us DOUBLE, energy_cache TEXT, error_cause TEXT, settled BOOLEAN, project_revision TEXT, user_revision TEXT, disturbed_by TEXT, quiet_share DOUBLE, discarded_rounds INTEGER, discarded_share DOUBLE, cycles DOUBLE, instructions DOUBLE, branch_misses DOUBLE, l1_misses DOUBLE, l2_misses DOUBLE, llc_misses DOUBLE, page_faults DOUBLE, context_switches DOUBLE, dram_percent DOUBLE, sm_percent DOUBLE, occupancy_percent DOUBLE, tensor_cores_percent DOUBLE, counters_missing TEXT, run_id TEXT, 
	PRIMARY KEY ("key"), 
	CONSTRAINT model_timings_time_or_error CHECK (NOT complete OR (error IS NULL) <> (median_us IS NULL)), 
	CONSTRAINT model_timings_no_time_beside_error CHECK (error IS NULL OR (median_us IS NULL AND min_us IS NULL AND mean_us IS NULL AND rounds = 0)), 
	CONSTRAINT model_timings_times_are_not_negative CHECK (min_us IS NULL OR min_us >= 0), 
	FOREIGN KEY(model_key) REFERENCES models ("key"), 
	FOREIGN KEY(settings_key) REFERENCES settings ("key"), 
	FOREIGN KEY(device_key) REFERENCES devices ("key")
);
INSERT INTO "model_timings" VALUES('5864bf27eee338e61bcca16eae8159d9','m','c1e927b8660276d0','0a3b7a22667b53b7',900.5,NULL,901.25,'["abc"]','{"rounds":3}','[[100.125,0.30000000000000004],[101.125,0.30000000000000004],[102.125,0.30000000000000004]]',3,50.2125,3.33333333333333314829e-01,50.7,0.0,50.0,51.0,0.0,0.015625,1,1.5,NULL,1,'2026-11-22T06:26:07.125601+00:00',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'model',NULL,1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE models (
	"key" TEXT NOT NULL, 
	name TEXT NOT NULL, 
	source TEXT NOT NULL, 
	batch_size INTEGER NOT NULL, 
	precision TEXT NOT NULL, 
	executor TEXT NOT NULL, 
	target TEXT NOT NULL, 
	notes TEXT NOT NULL, 
	device_key TEXT, 
	extracted BOOLEAN NOT NULL, 
	added_at TEXT NOT NULL, base_key TEXT, asked TEXT DEFAULT '[]' NOT NULL, label TEXT DEFAULT '' NOT NULL, recipe TEXT, reads TEXT, outputs_agree BOOLEAN, outputs_error DOUBLE, outputs_reference TEXT, 
	PRIMARY KEY ("key"), 
	FOREIGN KEY(device_key) REFERENCES devices ("key")
);
INSERT INTO "models" VALUES('m','resnet-18','local',1,'float32','default','llvm','["first","second"]','0a3b7a22667b53b7',1,'2026-11-22T06:26:07.115893+00:00','m','[]','',NULL,NULL,NULL,NULL,NULL);
CREATE TABLE op_profiler_schema (
	version INTEGER NOT NULL, 
	since TEXT NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "op_profiler_schema" VALUES(6,'2026-11-22T14:00:00.000000+00:00');
CREATE TABLE operators (
	"key" TEXT NOT NULL, 
	name TEXT NOT NULL, 
	anchor TEXT NOT NULL, 
	op_names TEXT NOT NULL, 
	inputs TEXT NOT NULL, 
	params TEXT NOT NULL, 
	outputs TEXT NOT NULL, 
	attrs TEXT NOT NULL, 
	layouts TEXT NOT NULL, 
	structure TEXT NOT NULL, 
	flops BIGINT NOT NULL, 
	bytes_read BIGINT NOT NULL, 
	bytes_written BIGINT NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "operators" VALUES('2996460672ac6ba5','fused_nn_conv2d_clip','nn.conv2d','["nn.conv2d","clip"]','[{"shape":[1,3,224,224],"dtype":"float32"},{"shape":[-1],"dtype":"int64"}]','[{"shape":[65,3,7,7],"dtype":"float32"}]','[{"shape":[1,65,112,112],"dtype":"float32"}]','[{"strides":[2,2],"padding":[3,3,3,3]},{"a_min":0.0,"a_max":Infinity}]','{"data":"NCHW","kernel":"OIHW","out":""}','0->1',1099511627777,8589934592,3211264);
INSERT INTO "operators" VALUES('df21ae4df7daa4a7','fused_nn_conv2d_clip','nn.conv2d','["nn.conv2d","clip"]','[{"shape":[1,3,224,224],"dtype":"float32"},{"shape":[-1],"dtype":"int64"}]','[{"shape":[64,3,7,7],"dtype":"float32"}]','[{"shape":[1,64,112,112],"dtype":"float32"}]','[{"strides":[2,2],"padding":[3,3,3,3]},{"a_min":0.0,"a_max":Infinity}]','{"data":"NCHW","kernel":"OIHW","out":""}','0->1',1099511627776,8589934592,3211264);
CREATE TABLE schedules (
	"key" TEXT NOT NULL, 
	template TEXT NOT NULL, 
	knobs TEXT NOT NULL, 
	origin TEXT NOT NULL, 
	factor_tile TEXT, 
	factor_split TEXT, 
	factor_fuse TEXT, 
	factor_reorder TEXT, 
	factor_compute_at TEXT, 
	factor_vectorize TEXT, 
	factor_unroll TEXT, 
	factor_parallel TEXT, 
	PRIMARY KEY ("key")
);
INSERT INTO "schedules" VALUES('d8b05bcec575058a','conv2d_NCHWc.x86','{"tile_ic":[4,16],"tile_oc":[4,16],"tile_ow":[8,14],"unroll_kw":true}','default','{"oc":16,"ow":14}','{"ic":16}',NULL,NULL,NULL,'16','"unroll_kw"',NULL);
CREATE TABLE settings (
	"key" TEXT NOT NULL, 
	threads INTEGER NOT NULL, 
	threads_effective INTEGER, 
	core_set TEXT NOT NULL, 
	core_set_effective TEXT NOT NULL, 
	cache TEXT NOT NULL, 
	cache_mechanism TEXT NOT NULL, 
	parallel_type TEXT NOT NULL, 
	streams INTEGER NOT NULL, 
	precision TEXT NOT NULL, 
	executor TEXT NOT NULL, 
	governor TEXT, 
	governor_effective TEXT, 
	cache_ways INTEGER, 
	cache_ways_effective INTEGER, 
	numa_node INTEGER, 
	numa_node_effective INTEGER, 
	sm_share_percent INTEGER, 
	sm_share_percent_effective INTEGER, 
	gpu_clock_mhz INTEGER, 
	gpu_clock_mhz_effective INTEGER, 
	PRIMARY KEY ("key")
);
INSERT INTO "settings" VALUES('c1e927b8660276d0',2,2,'[0,1]','[0,1]','model','in-graph','sequential',1,'float32','graph',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE INDEX model_operators_of_operator ON model_operators (operator_key);
CREATE INDEX measurements_of_operator ON measurements (operator_key, model_key);
CREATE INDEX corun_members_of_operator ON corun_members (operator_key);
CREATE INDEX failures_of_model ON failures (model_key);
CREATE INDEX failures_of_measured ON failures (measured_key);
CREATE INDEX measurements_counted ON measurements (model_key, device_key, complete, error_cause, foreign_load, settled);
CREATE INDEX model_timings_of_run ON model_timings (model_key, device_key, settings_key);
COMMIT;
