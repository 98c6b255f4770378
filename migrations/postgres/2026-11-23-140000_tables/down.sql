-- Deletes everything.
DROP TABLE meta, job, job_property, run, block, block_payload, block_failure, node, node_status, worker, plan, job_history, fire, run_log,
    job_group, alert_event, alert_channel, alert_delivery, job_data, run_instance, worker_record, package, package_piece, leader, broker,
    run_next, id_owner, site, robots;
