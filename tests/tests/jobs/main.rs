//! Real programs, whole jobs, each result checked: over plain TCP, under `yasmin run`, with
//! rings forced, and with the library taking its unlikely turns.

mod apache;
mod files;
mod git;
mod haproxy;
mod java;
mod mariadb;
mod memcached;
mod mpi;
mod nginx;
mod openssl;
mod postgresql;
mod proxies;
mod rabbitmq;
mod redis;
mod rsync;
mod ssh;
mod web;
