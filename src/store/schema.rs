//! The tables, as diesel knows them. Kept by hand beside `migrations/`, so that a build needs no database.

diesel::table! {
    meta (key) {
        key -> Text,
        value -> Text,
    }
}

// Only in PostgreSQL: beside an SQLite file, packages are files.
diesel::table! {
    package_piece (sha256, piece) {
        sha256 -> Text,
        piece -> Integer,
        bytes -> Binary,
    }
}

diesel::table! {
    job (id) {
        id -> Text,
        name -> Text,
        job_type -> Text,
        description -> Nullable<Text>,
        is_enabled -> Bool,
        is_deleted -> Bool,
        priority -> Integer,
        version -> BigInt,
        create_by -> Nullable<Text>,
        update_by -> Nullable<Text>,
        creation_time -> BigInt,
        update_time -> BigInt,
        schedule -> Nullable<Text>,
        policies -> Nullable<Text>,
        callback -> Nullable<Text>,
        task -> Nullable<Text>,
        successors -> Nullable<Text>,
        group_name -> Nullable<Text>,
        disabled_reason -> Nullable<Text>,
    }
}

diesel::table! {
    plan (job_id) {
        job_id -> Text,
        decided_until -> BigInt,
        next_at -> Nullable<BigInt>,
        asked_at -> Nullable<BigInt>,
        rest_from -> BigInt,
        last_fire -> Nullable<BigInt>,
        fires -> BigInt,
        failures -> BigInt,
        ended_well -> Nullable<BigInt>,
        told_silent -> Nullable<BigInt>,
        asked_from -> Nullable<BigInt>,
        fired_until -> Nullable<BigInt>,
    }
}

diesel::table! {
    job_history (id) {
        id -> BigInt,
        job_id -> Text,
        version -> BigInt,
        action -> Text,
        by -> Nullable<Text>,
        at -> BigInt,
        job -> Text,
    }
}

diesel::table! {
    job_property (id) {
        id -> BigInt,
        job_id -> Text,
        key -> Text,
        value -> Text,
    }
}

// The column `idempotency_key` is missing here: more than 32 columns need a feature of diesel that makes its build much longer.
/// Compares the key of a trigger with the one that follows.
pub(super) const KEY_IS: &str = "idempotency_key = ";

/// All columns of `run`. diesel's tables have at most 32 of them here.
pub(super) mod run {
    pub(in crate::store) use super::columns_of_run::run::*;
    pub(in crate::store) use crate::store::ownership::owner;
}

mod columns_of_run {
    diesel::table! {
        run (no) {
            no -> BigInt,
            identity -> Text,
            job_id -> Text,
            job_name -> Text,
            class_name -> Text,
            arguments -> Nullable<Text>,
            state -> Text,
            reason -> Nullable<Text>,
            priority -> Integer,
            download -> Text,
            queue -> Text,
            start_returned -> Bool,
            epoch -> BigInt,
            update_by -> Nullable<Text>,
            block_times -> BigInt,
            success -> BigInt,
            error -> BigInt,
            total -> BigInt,
            worker_id -> Nullable<Text>,
            trace_id -> Nullable<Text>,
            planned_at -> Nullable<BigInt>,
            creation_time -> BigInt,
            finish_time -> Nullable<BigInt>,
            kind -> Text,
            rules -> Text,
            attempt -> Integer,
            not_before -> Nullable<BigInt>,
            start_time -> Nullable<BigInt>,
            result -> Nullable<Text>,
            follow -> Bool,
            retry_of -> Nullable<Text>,
            queued -> Bool,
        }
    }
}

diesel::table! {
    run_next (run_no) {
        run_no -> BigInt,
        at -> BigInt,
        asked_from -> Nullable<BigInt>,
    }
}

diesel::table! {
    run_log (id) {
        id -> BigInt,
        run_no -> BigInt,
        at -> BigInt,
        level -> SmallInt,
        source -> Text,
        text -> Text,
    }
}

diesel::table! {
    job_group (id) {
        id -> Text,
        name -> Text,
        description -> Nullable<Text>,
        create_by -> Nullable<Text>,
        update_by -> Nullable<Text>,
        creation_time -> BigInt,
        update_time -> BigInt,
    }
}

diesel::table! {
    alert_event (id) {
        id -> BigInt,
        event -> Text,
        job_id -> Nullable<Text>,
        run_identity -> Nullable<Text>,
        at -> BigInt,
        detail -> Text,
        is_done -> Bool,
    }
}

diesel::table! {
    alert_channel (id) {
        id -> Text,
        name -> Text,
        kind -> Text,
        target -> Text,
        secret -> Nullable<Text>,
        filter -> Text,
        is_enabled -> Bool,
        version -> BigInt,
        create_by -> Nullable<Text>,
        update_by -> Nullable<Text>,
        creation_time -> BigInt,
        update_time -> BigInt,
    }
}

diesel::table! {
    alert_delivery (event_id, channel_id) {
        event_id -> BigInt,
        channel_id -> Text,
        event -> Text,
        job_id -> Nullable<Text>,
        state -> Text,
        attempts -> Integer,
        next_at -> BigInt,
        events -> BigInt,
        merged_into -> Nullable<BigInt>,
        last_error -> Nullable<Text>,
        creation_time -> BigInt,
        finish_time -> Nullable<BigInt>,
    }
}

diesel::table! {
    job_data (job_id) {
        job_id -> Text,
        data -> Text,
        run_identity -> Text,
        update_time -> BigInt,
        update_by -> Nullable<Text>,
    }
}

diesel::table! {
    run_instance (run_no, instance) {
        run_no -> BigInt,
        instance -> Integer,
        peer -> Nullable<Text>,
        attempt -> Integer,
        state -> Text,
        reason -> Nullable<Text>,
        result -> Nullable<Text>,
        start_time -> Nullable<BigInt>,
        finish_time -> Nullable<BigInt>,
        lines -> BigInt,
        exit_reason -> Nullable<Text>,
    }
}

diesel::table! {
    run_attempt (run_no, instance, attempt) {
        run_no -> BigInt,
        instance -> Integer,
        attempt -> Integer,
        peer -> Nullable<Text>,
        state -> Text,
        reason -> Nullable<Text>,
        start_time -> Nullable<BigInt>,
        finish_time -> Nullable<BigInt>,
    }
}

diesel::table! {
    package (sha256) {
        sha256 -> Text,
        size -> BigInt,
        name -> Nullable<Text>,
        media_type -> Text,
        create_by -> Nullable<Text>,
        creation_time -> BigInt,
    }
}

diesel::table! {
    fire (job_id, planned_at) {
        job_id -> Text,
        planned_at -> BigInt,
        kind -> Text,
        verdict -> Text,
        rule -> Nullable<Text>,
        reason -> Nullable<Text>,
        run_identity -> Nullable<Text>,
        version -> BigInt,
        planned_until -> BigInt,
        instants -> BigInt,
        creation_time -> BigInt,
    }
}

diesel::table! {
    block (key) {
        key -> BigInt,
        state -> SmallInt,
        attempt -> Integer,
        requests -> Integer,
        success -> Integer,
        error -> Integer,
        acked -> Bool,
        segment -> Nullable<Integer>,
        seg_offset -> Nullable<BigInt>,
        seg_length -> Nullable<BigInt>,
        seg_check -> Nullable<BigInt>,
        creation_time -> BigInt,
        finish_time -> Nullable<BigInt>,
        node_id -> Nullable<Text>,
        exception -> Nullable<Text>,
        site -> Nullable<Text>,
        priority -> SmallInt,
        bytes -> BigInt,
    }
}

diesel::table! {
    site (name) {
        name -> Text,
        state -> Binary,
        update_time -> BigInt,
        held_by -> Nullable<Text>,
    }
}

diesel::table! {
    robots (origin, agent) {
        origin -> Text,
        agent -> Text,
        rules -> Text,
        expire_time -> BigInt,
    }
}

diesel::table! {
    block_payload (key) {
        key -> BigInt,
        raw_length -> BigInt,
        prints -> Binary,
        payload -> Binary,
    }
}

diesel::table! {
    block_failure (key) {
        key -> BigInt,
        entries -> Binary,
    }
}

diesel::table! {
    node (node_id) {
        node_id -> Text,
        node_type -> Text,
        ip_address -> Text,
        processor_count -> BigInt,
        group -> Text,
        operating_system -> Text,
        memory -> BigInt,
        max_process_count -> BigInt,
        is_enabled -> Bool,
        creation_time -> BigInt,
        last_online_time -> BigInt,
        is_draining -> Bool,
        is_leaving -> Bool,
        reason -> Nullable<Text>,
        create_by -> Nullable<Text>,
        update_by -> Nullable<Text>,
        update_time -> BigInt,
        name -> Nullable<Text>,
    }
}

diesel::table! {
    node_status (id) {
        id -> BigInt,
        node_id -> Text,
        process_count -> BigInt,
        cpu -> BigInt,
        free_memory -> BigInt,
        creation_time -> BigInt,
    }
}

diesel::table! {
    node_connection (node_id, connect_time) {
        node_id -> Text,
        connect_time -> BigInt,
        ip_address -> Text,
        disconnect_time -> Nullable<BigInt>,
        reason -> Nullable<Text>,
    }
}

diesel::table! {
    worker (id) {
        id -> BigInt,
        full_class_name -> Text,
        connection_id -> Text,
        connect_time -> BigInt,
        disconnect_time -> Nullable<BigInt>,
    }
}

diesel::table! {
    worker_record (id) {
        id -> Text,
        name -> Nullable<Text>,
        group_name -> Nullable<Text>,
        version -> Nullable<Text>,
        tags -> Text,
        class_names -> Text,
        slots -> Nullable<Integer>,
        state -> Text,
        reason -> Nullable<Text>,
        by -> Nullable<Text>,
        update_time -> BigInt,
        creation_time -> BigInt,
        last_seen -> BigInt,
        create_by -> Nullable<Text>,
    }
}

diesel::table! {
    leader (id) {
        id -> Integer,
        broker -> Text,
        url -> Text,
        pid -> BigInt,
        term -> BigInt,
        renewals -> BigInt,
        is_locked -> Bool,
        is_released -> Bool,
        since -> BigInt,
        renewed_at -> BigInt,
        ttl_ms -> BigInt,
    }
}

diesel::table! {
    broker (id) {
        id -> Text,
        url -> Text,
        version -> Text,
        role -> Text,
        started_at -> BigInt,
        last_seen -> BigInt,
    }
}

diesel::table! {
    run_owner (broker) {
        broker -> Text,
        term -> BigInt,
        batch -> BigInt,
    }
}

diesel::table! {
    id_owner (kind, id) {
        kind -> Text,
        id -> Text,
        owner -> Text,
        claim_time -> BigInt,
    }
}

diesel::table! {
    series (step, at) {
        step -> BigInt,
        at -> BigInt,
        content -> Text,
    }
}

diesel::table! {
    access_token (name) {
        name -> Text,
        role -> Text,
        hash -> Text,
        job_groups -> Nullable<Text>,
        expire_time -> Nullable<BigInt>,
        create_by -> Nullable<Text>,
        creation_time -> BigInt,
    }
}

diesel::table! {
    audit_event (id) {
        id -> Text,
        at -> BigInt,
        caller -> Nullable<Text>,
        role -> Nullable<Text>,
        address -> Nullable<Text>,
        forwarded_for -> Nullable<Text>,
        operation -> Text,
        kind -> Text,
        object -> Nullable<Text>,
        members -> Nullable<Text>,
        status -> Nullable<Integer>,
    }
}

diesel::table! {
    job_hook (id) {
        id -> Text,
        job_id -> Text,
        name -> Text,
        secret -> Text,
        create_by -> Nullable<Text>,
        creation_time -> BigInt,
    }
}

diesel::allow_tables_to_appear_in_same_query!(block, block_payload, block_failure);
diesel::allow_tables_to_appear_in_same_query!(job, plan);
diesel::allow_tables_to_appear_in_same_query!(alert_delivery, alert_channel);
diesel::allow_tables_to_appear_in_same_query!(job, run);
diesel::allow_tables_to_appear_in_same_query!(worker, worker_record);
diesel::allow_tables_to_appear_in_same_query!(id_owner, worker_record);
